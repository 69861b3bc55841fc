"""The wire protocols and stored records of Pulsar and BookKeeper, as values.

``framing`` cuts a byte stream into frames, ``proxy_header`` reads HAProxy's header in front of one.
``pulsar`` is the protocol between clients and brokers, ``bookkeeper`` the one between brokers and
bookies, ``records`` has the records of both projects in ZooKeeper and in ledgers, ``functions`` the
messages in the topics of functions workers.

The package is pure: it opens no socket or file, reads no clock and draws no random number. It turns
bytes into values and values into bytes. Bytes that break a protocol raise ``WireError``, bytes that
are not the expected record raise ``MalformedRecord``; no bytes raise any other error.

Where a module names classes of Apache Pulsar or BookKeeper as its "Facts", its format and its
behaviour are taken from there.
"""
