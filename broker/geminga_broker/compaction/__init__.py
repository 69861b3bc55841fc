"""Topic compaction by key: the newest message of every key, in a ledger of its own.

``selection``         which messages survive, and an entry with some messages taken out; pure
``stream``            all of a topic in order: the former compacted ledger, then the log
``CompactionRun``     one pass over that stream in two phases, which writes the new compacted ledger
``TopicCompactor``    one topic's compactor: its cursor, the ledger in force, one run at a time
``CompactedLedger``   reads a compacted ledger by positions of the log
``CompactedView``     what compacted readers see: that ledger up to the horizon, then the log
``report``            figures for operators and metrics; pure

A crash at any moment leaves the former compacted ledger in force or the new one, whole. The log
keeps everything beyond the compaction's cursor, so nothing is trimmed that is not compacted yet.
Subscriptions and topics use this room; it knows neither.
"""
