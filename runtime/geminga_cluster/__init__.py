"""The metadata of a cluster in ZooKeeper, for all of its servers: brokers, proxies and workers.

Each kind of record has a module: ``clusters``, ``tenants``, ``namespaces``,
``partitioned_topics``, ``persistent_topics`` and ``topic_lists``, ``brokers`` (the living ones).
They stand on ``watched``, a cache that ZooKeeper's watches keep valid. ``claims`` and ``election``
are for nodes that only one of several servers may have, and ``initialize`` writes a new cluster's
first records.

Reads are answered from memory where they can be. While ZooKeeper is away, they are answered by what
was read last, so that clients are served on. Writes compare versions: of two servers that change a
record at the same time, one repeats its change. Clusters may share a configuration store, a second
ZooKeeper, which then has the clusters, tenants, policies and partitioned topics.

Values come from ``geminga_protocol.records``. Nothing here knows what a topic holds, nor which
broker serves it.
"""
