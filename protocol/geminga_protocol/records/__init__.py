"""Records in ZooKeeper and in cursor ledgers, as values: each module is one kind of record.

A record is a frozen dataclass with ``encode()`` and ``decode()``; its module says under which path
it is stored. All are the records that Apache BookKeeper and Apache Pulsar write: what they wrote
is decoded and encoded back to the same bytes. Nothing here reads or writes ZooKeeper.

``encodings`` holds what several records share, ``bookies`` and ``ledgers`` BookKeeper's records,
``cluster`` and ``topics`` Pulsar's. Bytes that are no such record raise ``MalformedRecord``.
"""
