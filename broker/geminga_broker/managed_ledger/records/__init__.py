"""The node of a log in ZooKeeper, which only the broker that owns the topic writes.

``OwnRecord`` writes one node by compare-and-set and finds out what became of unanswered writes;
``LogStore`` knows the format of the log's record; ``RecordedChain`` changes record and chain
together; ``properties`` are texts that others keep in the record.
"""
