"""What auto-recovery reads and writes in ZooKeeper: the records that all daemons share.

``underreplication_marks`` is the list of ledgers to repair, ``claims`` the locks on them while a
worker repairs (``ledger_locks``), ``controls`` the switches of operators. ``ledger_listing`` and
``live_bookies`` list what there is; ``watches`` notices changes.
"""
