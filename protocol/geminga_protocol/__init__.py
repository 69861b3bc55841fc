"""The wire protocols and stored records of Pulsar and BookKeeper, as values.

``pulsar`` is the protocol between clients and brokers, ``bookkeeper`` the one between brokers and
bookies, ``records`` what both projects keep in ZooKeeper and in ledgers, ``functions`` the messages
in the topics of functions workers. ``framing`` cuts a byte stream into frames for both protocols,
``proxy_header`` reads HAProxy's header in front of one.

This package promises purity: it opens no socket or file, asks no clock and draws no random number.
Bytes come in, values go out, and back. Bytes that break a protocol raise ``WireError``, bytes that
are no record raise ``MalformedRecord``, whatever the bytes are; no other error escapes.
"""
