"""The broker: serves topics to Pulsar clients, and keeps nothing on its own disk.

A message comes in through ``sessions`` (the binary protocol, one client each), goes to its topic
(``topics``: producers, parts, maintenance), into the topic's log (``managed_ledger``: a chain of
ledgers with cursors), and from there to ``subscriptions``, which decide which consumer gets it.
Around that path:

- ``ownership`` decides, through ZooKeeper, which broker has which bundle of topics;
  ``load_manager`` moves bundles between brokers.
- ``policies`` decides what holds for a topic; ``topic_policies`` stores policies of single topics,
  ``policy_follower`` brings changes to the topics in use.
- ``schemas``, ``delayed``, ``compaction`` and ``replication`` are what their names say.
- ``admin`` is the REST side, ``metrics`` what ``/metrics`` shows.

``broker`` puts the parts together, ``part`` runs it as a process, ``config`` has its settings. What
exists in the cluster is read and written with ``geminga_cluster``. An import contract in
``pyproject.toml`` fixes the layers: sessions and REST stand on topics, these on subscriptions, and
these on the log.
"""
