"""Decides what is wrong with what was read, and says it for people and for programs. Pure.

``finding``          one thing in a file, right or wrong
``damaged_entries``  which entries of a damaged block are damaged
``ledger_verdict``   which copies of a ledger's entries are wrong
"""
