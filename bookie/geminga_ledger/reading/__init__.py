"""Reading ledgers: entries in order, and how far an open ledger is confirmed.

``reader`` is what users hold; one ``range_read`` is one attempt to read some entries. How far a
ledger may be read is the business of ``ledger_view``, which asks bookies (``lac_read``) or waits at
them (``long_poll``). ``last_entry_poll`` asks for the newest entry, and fences for a recovery.
"""
