"""BookKeeper's wire protocol and entry layout, as values: no connection, no clock, no disk.

``v2`` is the fixed binary header that brokers and bookies speak on the hot path, ``digest`` the
layout of an entry, ``requests_pb2`` the protobuf messages of V3.
"""
