"""What exists in a cluster, as it stands in ZooKeeper under ``/admin`` and ``/managed-ledgers``.

One module per resource (clusters, tenants, namespaces, partitioned and persistent topics) over the
records of ``geminga_protocol.records``, and ``initialize``, which writes a new cluster's first
records. Who serves what is the business of ``ownership``.
"""
