"""``geminga perf``: measures how fast a cluster takes and gives messages, from one process.

``loads`` are the loads, ``meter`` counts what they see. Like ``messaging``, they need the bare
client library alone.
"""

# What a message says of itself whose latency is measured: the run that it is of, and when it left.
LATENCY_BYTES_MIN = 16
