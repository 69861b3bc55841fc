"""What a topic says of itself: its facts, put into the documents and the metrics' snapshot."""
