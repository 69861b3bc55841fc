"""The middle floor of the client: channels, which carry the stored payloads of one topic each.

A payload here is what a broker stores, ``[magic, checksum, metadata size, metadata, body]``: what
is in it (batches, compression, schemas) is decided above. ``Channels`` opens channels and closes
them; a ``Channel`` keeps itself attached to whichever broker serves its topic. ``ProducerChannel``
keeps what has no receipt and sends it again, in order; ``ConsumerChannel`` has permits, positions
to acknowledge, seeking. What moves entries without looking into them (a replicator, say) uses these
directly.
"""
