"""The schema registry: which schemas topics have, and which may follow them.

``registry`` is the door: it registers, finds and deletes the versions of a topic's schema.
``judging``, which is pure, says what a definition is worth and whether one may follow others;
``storage`` keeps versions as upstream's brokers do, in ledgers that a node in ZooKeeper names. The
room knows neither topics nor REST: a topic's part (``topics.topic_schemas``) asks it for clients.
"""
