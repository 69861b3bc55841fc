"""BookKeeper's wire protocol and entry layout, as values: no connection, no clock, no disk.

``codes`` has the numbers of the protocol. ``v2`` is its version with a fixed binary header, in
which brokers add and read entries; ``v2_rare`` has the V2 requests that are off the hot path.
``v3`` is the version in protobuf (``requests_pb2``), which tools and plain clients speak;
``v3_requests`` makes the few V3 requests that brokers need, ``availability`` is the list of entries
in one of the answers. ``digest`` is the layout of an entry, ``errors`` has the refusals of bookies.
"""
