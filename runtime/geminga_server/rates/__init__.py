"""Arithmetic of counts and times, without a clock of its own: callers pass the time in.

``token_bucket`` limits rates, ``meter`` turns counters into rates, ``durations`` counts latencies
in buckets. All of it is pure.
"""
