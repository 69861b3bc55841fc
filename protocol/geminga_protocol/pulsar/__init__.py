"""Pulsar's binary protocol as values: bytes to commands and messages, and back.

In reading order: ``frames`` cuts a stream into frames; ``commands`` parses and encodes the command
in a frame; ``send``, ``message`` and ``ack`` do so by hand for the commands that come with every
message; ``answers`` encodes a broker's responses; ``connect`` and ``features`` interpret CONNECT.
``messages`` holds the formats of payloads, ``topics`` the names of topics and namespaces, ``enums``
the enumerations that other rooms use, ``errors`` what can be wrong. ``api_pb2`` is generated from
Pulsar's own definition.

Parsers take ``(buffer, start, end)`` and leave frames where they arrived, so that a payload is
copied once at most. They raise ``WireError`` for bytes that break the protocol, and nothing else.
"""
