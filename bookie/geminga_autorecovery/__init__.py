"""Auto-recovery: finds ledgers that lack copies, and copies them back to their full number.

``AutoRecovery`` is the daemon, ``LedgerRepair`` checks and repairs one ledger, ``decommission`` and
``recover`` take a bookie out of service. Records, rules and names are BookKeeper's, so that Java
daemons and tools work beside it.
"""
