"""The middle floor of the client: channels, which carry the stored payloads of one topic each.

A payload here is what a broker stores, ``[magic, checksum, metadata size, metadata, body]``: what
is in it (batches, compression, schemas) is decided above. ``Channels`` opens channels and closes
them; a ``Channel`` keeps itself attached to the broker that serves its topic. ``ProducerChannel``
keeps payloads without a receipt and sends them again, in order; ``ConsumerChannel`` handles
permits, acknowledgements and seeks. Code that moves entries without looking into them, such as the
broker's replicator, uses these directly.
"""
