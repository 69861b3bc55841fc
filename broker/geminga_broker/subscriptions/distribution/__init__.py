"""Which consumer of a subscription gets which entry: facts in, decisions out. Pure.

``shared`` and ``key_shared`` decide for the types that spread entries over several consumers,
``active_consumer`` for those where one gets everything; the other modules are parts of these. No
module here reads an entry, sends one, waits or looks at a clock: dispatchers do.
"""
