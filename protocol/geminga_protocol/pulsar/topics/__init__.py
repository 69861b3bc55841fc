"""Names of topics and namespaces, and the patterns by which clients subscribe to many topics.

``topic_names`` has the names. A client's pattern is parsed by ``pattern_syntax``, compiled and
matched by ``topic_patterns``, and applied to lists of topics in ``topic_lists``.
"""
