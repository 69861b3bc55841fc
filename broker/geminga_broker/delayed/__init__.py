"""Delayed messages of a subscription: which there are, when they are due, what of that is stored.

``schedule``         the index of delayed messages and their times, in memory; pure
``BucketStore``      parts of that index (*buckets*) in ledgers, named by properties of the cursor
``DelayedMessages``  what dispatchers use: it sifts what they read, wakes them when something is
                     due, and writes, reads and deletes buckets in the background

No message is delivered early. What is in no bucket when a broker dies is found again by reading the
topic: buckets only shorten that reading, and losing one loses no message. The
formats of buckets are upstream's (PIP-195).
"""
