"""Connections to bookies: how requests get there and answers come back.

A link (``links``, ``v3_link``) is the way to one bookie; it outlives its connections and makes the
next one when a connection breaks. A connection (``v2_connection``, ``v3_connection``) is one TCP
stream. Entries are added and read over V2, in batches that ``outbox`` gathers; V3 is for what V2
cannot express. Nothing here knows what a quorum is, or what belongs to which bookie.
"""
