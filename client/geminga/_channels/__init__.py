"""The middle layer of the client: channels, which carry the stored payloads of one topic each.

A payload here is what a broker stores, ``[magic, checksum, metadata size, metadata, body]``: what
is in it (batches, compression, schemas) is decided above. In reading order: ``registry`` has the
channels of a client, with the connections that they share; a ``Channel`` keeps itself attached to
the broker that serves its topic; ``ProducerChannel`` keeps payloads without a receipt and sends
them again, in order; ``ConsumerChannel`` handles permits, acknowledgements and seeks. ``pending``
decides, without IO, what is sent and what is confirmed.

Code that moves entries without looking into them, such as the broker's replicator, uses these
directly.
"""
