"""Messages as stored and sent: metadata, payload, keys, batches, and the integers within them.

Brokers read metadata without protobuf where it has its usual form; ``usual_metadata`` draws it.
"""
