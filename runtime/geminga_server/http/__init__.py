"""HTTP on both sides: servers of ASGI applications, and requests from one server to another.

``server`` serves an application; ``connections`` bounds and ages its connections. ``rest_calls``
asks another server for one small answer; ``exchange`` is one request over a connection of our own,
whose bodies are streamed, and ``forwarding`` passes requests of clients on with it.
"""
