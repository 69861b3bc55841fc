"""Ledgers in ZooKeeper: their metadata (``store``) and their numbers (``ids``).

Every change of metadata is a compare-and-set, so that of two processes that change a ledger at once
one finds that it was too late.
"""
