"""Records of ledgers: their metadata, their paths in ZooKeeper, the marks of missing replicas."""
