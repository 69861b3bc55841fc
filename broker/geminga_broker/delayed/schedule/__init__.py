"""The delayed messages of one subscription in memory, and when each is due. Pure.

``deliver_at`` finds the delivery time of an entry, ``DelayedBitmap`` is the set of entries that are
held back, ``TimeWheel`` orders them by time, ``DelayedMessageIndex`` cuts them into buckets and
``segments`` a bucket into segments.
"""
