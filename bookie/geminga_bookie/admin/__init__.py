"""A bookie's HTTP admin: BookKeeper's everyday endpoints, on the port of its metrics.

Paths, methods and JSON are those of Apache BookKeeper's HTTP service (``HttpRouter`` and the
``...Service`` classes), as a real one answered. Imported at the first request for one.
"""
