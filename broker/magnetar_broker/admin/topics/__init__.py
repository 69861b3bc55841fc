"""What the REST side and the metrics show of topics, taken from the topics themselves."""
