"""Replication of topics to other clusters.

``messages``        decides which entries of a log are replicated
``channel``         sends them to the remote cluster in order, as a producer there
``Replicator``      moves one topic to one cluster: reads, sends, acknowledges what has a receipt
``remote_schemas``  the versions that the remote cluster has for the topic's schemas
``RemoteClusters``  one client for each remote cluster, shared by all topics
``RemoteTopics``    makes partitioned topics in remote clusters, over their REST

The cursor of a replicator stands before the oldest entry without a receipt. Whatever fails, all
beyond it is read and sent again; the remote broker recognizes what it has by the positions of the
entries. ``topics.topic_replication`` starts and stops replicators as a topic's policies say.
"""
