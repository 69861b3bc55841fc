"""What stands in ZooKeeper and in cursor ledgers, as values: each module is one kind of record.

A record is a frozen dataclass with ``encode()`` and ``decode()``, and its module says at which path
it stands. All are the records that Apache BookKeeper and Apache Pulsar write: what they wrote is
read and written back to the same bytes. Nothing here reads or writes ZooKeeper.
"""
