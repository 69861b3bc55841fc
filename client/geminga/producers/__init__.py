"""Producers: from the values that users send to the stored payloads that channels carry.

``producer`` is what users hold: it encodes values, chooses partitions and bounds what waits.
Under it ``topic_producer`` publishes to one topic or partition: it numbers messages and makes
payloads of them, alone, in batches or in chunks. What decides is pure: ``attributes`` and
``batches`` say what a payload is made of, ``routing`` where a message goes. ``room`` bounds what
waits for receipts, for one producer and for all of a client.
"""
