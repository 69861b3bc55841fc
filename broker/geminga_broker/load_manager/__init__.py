"""Which broker shall serve which bundles: placed when no broker owns them, moved, split.

``cluster_load``, ``placement``, ``shedding`` and ``splitting`` decide, purely, from the brokers'
load reports; ``history`` averages them, and keeps the averages in ZooKeeper for the next leader;
``load_manager`` acts on the leader, through a ``BundleMover`` that asks the owners of bundles over
REST. What becomes of the ownership of a bundle is the business of ``ownership``.
"""
