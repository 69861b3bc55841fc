"""Publishing to a topic: its producers, and the steps that messages pass on the way to the log.

``publish_path`` composes the steps: rate limits and encryption (``publish_gate``), deduplication
(``topic_deduplication``), then the log. ``producers`` is the registry of ``producer``s and
``topic_epoch`` counts the exclusive ones; ``replicator_producer`` is another cluster's replicator,
``internal_publisher`` the broker itself.
"""
