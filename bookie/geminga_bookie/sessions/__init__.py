"""Clients' connections: requests in, answers out, in the protocol's second and third version.

``connection`` admits, authorizes and secures a connection, ``session`` handles its V2 adds and
reads, which are the hot path. All other requests go by ``rare_requests`` to ``batch_reads``, and by
``v3`` to ``v3_adds`` and ``v3_reads``. ``deferred_answers`` makes the answers that need the disk,
one after the other (``reads`` those to plain V2 reads). ``long_polls`` are readers that wait for
new entries, ``fencing`` is what all ways to fence share, ``back_pressure`` stops reading sockets
when too much is in memory. ``context`` is what all sessions share.
"""
