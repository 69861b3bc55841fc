"""What server parts share: the door to ZooKeeper, settings, logs, metrics, HTTP, control."""
