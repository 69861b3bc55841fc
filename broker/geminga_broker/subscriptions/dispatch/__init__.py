"""Sending: dispatchers read a subscription's entries and write them to consumers.

``dispatcher`` is what all subscription types share; ``single_dispatcher`` serves Exclusive and
Failover, ``shared_dispatcher`` and ``key_shared_dispatcher`` (on ``tracking_dispatcher``) the types
that track single entries. ``cursor_reader`` and ``compacted_reader`` supply the entries;
``dispatch_throttle`` holds them back at ``rate_limiter``s. Nothing here waits, except for the
background reads of ``cursor_reader``.
"""
