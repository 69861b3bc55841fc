"""The subscriptions of a topic: created, found, deleted, and the limits on them.

``subscription_registry`` is what both kinds of topics share; ``persistent_subscriptions`` and
``non_persistent_subscriptions`` are the two kinds. ``dispatch_limiters`` are a topic's dispatch
rates.
"""
