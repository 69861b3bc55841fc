"""How workers become one cluster: who leads, what is to run, and which worker runs which instance.

All workers consume the topic ``coordinate`` with one Failover subscription; the one whose consumer
is active leads (``leadership``). Every worker publishes heartbeats to that topic: a heartbeat that
is stored is its lease to run instances (``heartbeats``), and the leader, which receives them, knows
from them which leases may still hold (``sessions``). Functions stand in a compacted topic
(``keyed_log``), assignments in another. ``schedule`` decides which worker is to run what, and
``orders`` which step towards that is safe now; both are pure.
"""
