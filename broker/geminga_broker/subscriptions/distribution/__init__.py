"""Which consumer of a subscription gets which entry: facts in, decisions out. Pure.

``shared`` and ``key_shared`` decide for subscriptions that spread entries over several consumers,
``active_consumer`` for those where one gets everything; the rest is what these are made of. Nothing
here reads an entry from anywhere, sends one, waits, or looks at a clock: dispatchers do.
"""
