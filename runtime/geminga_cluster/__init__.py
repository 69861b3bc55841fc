"""What a cluster's ZooKeeper says, for every server of it: brokers, and later proxies and workers.

One module for each kind of record: ``clusters``, ``tenants``, ``namespaces``,
``partitioned_topics``, ``persistent_topics`` and ``topic_lists``, ``brokers`` (the living ones);
``system_topics`` tells Pulsar's own topics. They stand on ``watched``, which keeps what was read
until it changes. ``claims`` and ``election`` are for what one of many may have, and ``initialize``
writes a new cluster's first records.

Values come from ``geminga_protocol.records``. Nothing here knows what a topic holds, nor which
broker serves it: that is the brokers' business.
"""
