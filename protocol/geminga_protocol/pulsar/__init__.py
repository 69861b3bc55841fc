"""Pulsar's binary protocol as values: bytes to commands and messages, and back.

Here are the commands: ``frames`` cuts a stream, ``commands`` parses and encodes most of them;
``send``, ``message`` and ``ack`` are the ones that a broker meets for each message, written by hand
for speed. ``answers`` encodes what a broker replies. ``messages`` holds what a command carries,
``topics`` the names that it speaks of. ``api_pb2`` is generated from Pulsar's own definition.
"""
