"""Routes about the cluster as a whole, and about the broker that answers them.

Brokers, clusters and tenants; the entrance page, metrics, and the refusal of calls that belong to
functions workers.
"""
