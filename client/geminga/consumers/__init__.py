"""Consumers: what users import, and how messages come in from the channels that bring entries.

``topic_consumer`` has one topic: it opens the entries that come, and acknowledges, refuses and
tracks them. ``receiver_queue`` holds the messages of all topics of a consumer, and gives each topic
its turn. ``topic_set`` finds out which topics a consumer has. Nothing here is exported.
"""
