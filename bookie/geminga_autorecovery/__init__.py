"""Auto-recovery: finds ledgers that lack copies, and copies them back to their full number.

One daemon of the cluster is elected auditor. It notices lost bookies and marks, in ZooKeeper, the
ledgers that stood on them ("under-replicated"). The replication workers of all daemons take marked
ledgers, one worker each, and copy what is missing to other bookies.

Read it in this order:

``autorecovery``  the daemon: a candidate for auditor and a worker, in a bookie's process or alone
``auditing``      election, lost bookies, and the periodic checks of every ledger
``replication``   the worker, and the repair of one ledger
``removal``       tools that take a bookie out of service
``zookeeper``     the records that all daemons share: marks, locks, switches
``decisions``     what is wrong with a ledger and what to do about it (pure)
``part``          the daemon as a process of its own

Copies are stored before the metadata names the bookie that has them, so readers are right at any
moment. Records, rules and names are BookKeeper's: Java daemons and tools work beside it. It closes
a ledger only by recovery (``geminga_ledger``), keeps no files, and knows nothing of Pulsar.
"""
