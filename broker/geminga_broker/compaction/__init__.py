"""Topic compaction by key: the newest message of every key, in a ledger of its own."""
