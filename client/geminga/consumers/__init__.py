"""Consumers, readers and table views, and how messages come out of the entries of channels.

In reading order: ``options`` are what users choose. ``consumer``, ``reader`` and ``table_view`` are
what users hold. Under each is a ``topic_group`` with the topics that ``topic_sources`` finds, and a
``topic_consumer`` for each topic or partition: it opens the entries that arrive (``incoming``,
without IO), acknowledges and refuses them, and has them delivered again (``redelivery``,
``dead_letters``). ``receiver_queue`` holds messages until they are received, and gives each topic
its turn; of a table view ``table_rows`` stands in its place. ``factory`` puts all of it together.
``entry_reader`` reads entries without opening them.

Delivery is at least once, and a call that is cancelled takes no message with it. Nothing here
writes to a connection: ``_channels`` does.
"""
