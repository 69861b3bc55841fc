"""The state of functions: values and counters that all instances of a function share.

Each instance writes a topic of its own, its *lane*; with EFFECTIVELY_ONCE it writes one lane for
each input partition that it consumes. It reads the lanes of the others. No other store is needed:
the ledgers of these topics keep the state, and compaction keeps them as small as it is.

To be read in this order: ``changes`` are those of a message before it has succeeded; ``table`` says
what the records of all lanes together mean; ``records`` holds them in memory, and ``local_copy`` on
the worker's disk, where they may be lost at any moment. ``lanes`` names and writes the topics;
``changelog`` joins all of this into the state that an instance uses, and ``open_states`` into the
states that REST shows.

What is committed is never lost, and a lane that has lost something is noticed. ``changes``,
``records`` and ``table`` do no I/O.
"""
