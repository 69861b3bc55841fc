"""ZooKeeper in memory: a server, sessions with it, and what goes wrong between them.

``server`` has the sessions and the time-outs, ``node_tree`` the nodes. ``session`` is what code
under test uses; it stands on ``link``, the connection, over which ``requests`` travel.
``write_troubles`` chooses writes that fail; ``interception`` lets a test step into the requests of
one session.
"""
