"""Consumers, readers and table views, and how messages come in from channels that bring entries.

``topic_consumer`` has one topic: it opens the entries that come, and acknowledges, refuses and
tracks them. ``topic_group`` has all topics of a consumer, which ``topic_sources`` finds out, and
``receiver_queue`` holds their messages and gives each topic its turn. ``factory`` puts all of it
together. Users import ``geminga``, and not these modules.
"""
