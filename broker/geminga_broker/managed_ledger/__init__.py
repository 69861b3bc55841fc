"""The managed ledger: a chain of ledgers as one log, its cursors, and the entry cache."""
