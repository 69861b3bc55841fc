"""The rules of replication, as pure decisions: no clock, no chance, no IO.

``quorum`` says which bookies hold an entry and when it is confirmed, ``placement`` which bookies a
ledger should use, ``ensembles`` how a change of bookies is written down, ``recovery_rules`` where a
ledger ends whose writer is gone. ``bookie_health`` and ``stall_detector`` judge bookies by what
they answered and when.
"""
