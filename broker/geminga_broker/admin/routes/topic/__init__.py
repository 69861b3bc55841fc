"""Routes about topics: partitions, stats, storage, subscriptions, messages, schemas, lookup.

Most of them answer on the broker that owns the topic; ``admin.serving`` redirects callers there.
"""
