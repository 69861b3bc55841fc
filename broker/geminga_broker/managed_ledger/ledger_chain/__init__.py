"""The ledgers of a log as values: which there are, when the next begins, which ones may go. Pure.

``chain`` has the ledgers and the arithmetic on positions, ``rollover`` says when a ledger is
followed by the next, ``retention`` which ledgers at the front are no longer needed.
"""
