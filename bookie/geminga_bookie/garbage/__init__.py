"""Garbage collection: room for new entries from deleted ledgers.

The ``collector`` runs a round now and then. ``ledger_deletion`` removes from the index the ledgers
that ZooKeeper does not know any more; ``compaction`` gives entry logs back that hold little else.
What is garbage, and when it is looked for, is decided in ``decisions.garbage``.
"""
