"""Checkers: whether what clients were told can be true. Pure: they take facts and raise
``InvariantViolated``.

``checkers`` compares sets and sequences. ``linearizability`` looks for one order of operations that
explains all answers; ``log``, ``acknowledgements`` and ``ownership`` ask that of a topic's log, of
a subscription, and of what has one owner at a time.
"""
