"""The auditor: one daemon of the cluster, which finds ledgers that lack copies and marks them.

``election`` decides which daemon it is, ``auditor`` does the work, ``periodic_checks`` are its
three kinds of check of every ledger.
"""
