"""Records about one topic: its log, cursors, schemas, delayed messages and compacted ledger.

Some stand in ZooKeeper, others as entries in a ledger that a ZooKeeper record names.
"""
