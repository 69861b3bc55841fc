"""BookKeeper's wire protocol and entry layout, as values: no connection, no clock, no disk.

``v2`` is the fixed binary header that brokers and bookies speak on the hot path, ``v2_rare`` what
there is of it off that path, ``v3`` the protobuf protocol of tools and plain clients with its
messages in ``requests_pb2``, ``availability`` the list of entries in one of them. ``digest`` is the
layout of an entry.
"""
