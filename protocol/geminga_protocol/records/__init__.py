"""Records in ZooKeeper and in ledgers, as values: one module for each kind of record.

A record is a frozen dataclass with ``encode()`` and ``decode()``; its module has the path at which
it is stored. All are records of Apache BookKeeper and Apache Pulsar: what these wrote decodes, and
encodes to the same bytes again. Nothing here reads or writes ZooKeeper.

``encodings`` has the encodings that records share. ``bookies`` and ``ledgers`` are BookKeeper's
records, ``cluster`` and ``topics`` are Pulsar's. Bytes that are not the expected record raise
``MalformedRecord``, and nothing else.
"""
