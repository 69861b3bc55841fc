"""Taking a bookie out of service, for tools: all that it held goes to other bookies.

``decommission`` has the workers of the cluster do it, ``bookie_recovery`` does it itself, and
``known_bookies`` recognizes an id that was mistyped.
"""
