"""What is written to ledgers, and how its durability is reported.

``append_request`` is the tuple that a publisher hands over, ``Appender`` one open ledger of a log
with its unconfirmed entries, ``broker_entry_metadata`` what the broker puts in front of an entry.
"""
