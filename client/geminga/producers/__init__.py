"""Producers: from the values that users send to the stored payloads that channels carry.

In reading order: ``options`` are what users choose. ``producer`` is what users hold: it encodes
values, chooses partitions, and bounds what is pending (``send_window``, for one producer and for
all of a client). Under it ``topic_producer`` publishes to one topic or partition: it numbers
messages and makes payloads of them, alone, in batches or in chunks. What a payload is made of and
where a message goes is decided in ``outgoing``, without IO. ``entry_producer`` is for programs that
cut and number entries themselves.

Messages are stored in the order of the calls, and none is left out: ``_channels`` keeps payloads
until the broker has confirmed them. Nothing here writes to a connection.
"""
