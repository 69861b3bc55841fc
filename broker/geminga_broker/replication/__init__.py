"""Replication of topics to other clusters.

``messages`` decides what of a log is replicated, ``channel`` sends it to the remote cluster in
order, ``replicator`` moves one topic to one cluster, ``remote_clusters`` has the connections,
``remote_topics`` makes partitioned topics there.
``topics.topic_replication`` starts and stops replicators as a topic's policies say.
"""
