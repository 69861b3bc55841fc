"""A bookie's HTTP admin: BookKeeper's everyday endpoints, on the port of its metrics.

Paths, methods and JSON are those of Apache BookKeeper's HTTP service (``HttpRouter`` and the
``...Service`` classes), as a real one answered. ``app`` takes requests in, ``routes`` says which
endpoint has which path; the endpoints are in ``this_bookie``, ``bookies``, ``ledgers``,
``collection`` and ``recovery``. ``access`` is what they work with, ``documents`` what they take and
give, ``bookie_requests`` asks other bookies. Clients of the bookie protocol never need any of it.
"""
