"""Sessions: the binary protocol with one client each, from its first frame to its last.

In reading order:

- ``connection`` is the asyncio protocol: it cuts the stream into frames and passes each command to
  its handler. SEND and plain ACK are decoded by hand, as they are nearly all of the traffic.
- ``commands`` holds the handlers, one group per subject (handshake, publishing, consuming, lookups,
  topic lists, schemas).
- ``command_rules`` decides, without acting, which commands a connection takes in which state.
- ``session`` is what handlers, producers and consumers work on: the client's identity and state,
  put together of ``outbox`` (what is written), ``back_pressure`` (when the socket is read),
  ``liveness`` (keep-alive) and ``requests`` (commands that run as tasks).
- ``context`` is what all sessions of a broker share; ``config`` has their settings.

Every command is answered or ends the connection. No task and no future is made per message. All
that the handling of one read produces leaves with one write. Memory is bounded for each connection
and for all together. Sessions know topics, but nothing below them, and no topic knows a session
but as a ``ClientSession``.
"""
