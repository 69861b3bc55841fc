"""How fast messages go. Pure: the time is an argument of each call.

``pace``       when the next message is due at a given rate
``histogram``  percentiles of durations, in memory that does not grow
``meter``      messages, bytes and latencies of a run and of its last period
"""
