"""Records of one topic: its log, cursors, schemas, delayed messages and compacted ledger.

Some are nodes in ZooKeeper, others are entries of a ledger that a node in ZooKeeper names.
"""
