"""What is published to a topic: by whom, under which limits, and which of it is new."""
