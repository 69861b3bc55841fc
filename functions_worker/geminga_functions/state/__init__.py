"""The state of functions: values and counters that all instances of a function share.

Each instance writes a topic of its own, its lane, or with EFFECTIVELY_ONCE one for each of its
input partitions; it follows those of the others. ``table`` is what all lanes together say. No store
of its own is needed: the ledgers of these topics keep the state, and compaction keeps them as small
as it is. ``local_copy`` is a copy on the worker's disk, which may be lost at any moment.
"""
