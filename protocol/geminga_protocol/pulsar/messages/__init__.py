"""Messages as stored and sent: checksum, metadata, batches, and the integers within them.

``payload`` has the layout. ``usual_metadata`` draws the form in which clients usually write
metadata; ``message_count`` and ``sticky_key`` read that form without protobuf, because a broker
needs both for every message. ``replication`` is what brokers add when they copy a message to
another cluster.
"""
