"""Sessions: one client's connection, from its first frame to its last."""
