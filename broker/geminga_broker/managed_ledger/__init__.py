"""The log of a topic: a chain of ledgers on bookies, its cursors, and the newest entries in memory.

Read it from the bottom up:

``positions``        where an entry is: ``(ledger_id, entry_id)``
``ledger_chain``     the ledgers of a log, retention and rollover as arithmetic; pure
``acknowledgement``  what one subscription has acknowledged, and what is stored of it; pure
``cache``            the newest entries, and those that dispatchers read ahead; pure
``records``          the log's node in ZooKeeper, which only the owner of the topic writes
``reading``          ``LogReader``: memory first, bookies otherwise; what stored payloads say
``writing``          append requests on their way to one ledger, and the broker's own entry metadata
``cursors``          ``Cursor``: acknowledgements in memory, written behind; where they are stored
``managed_ledger``   ``ManagedLedger`` puts these together: append, roll over, trim, delete
``factory``          opens logs and cursors, and sweeps the open ones

Promises: entries are confirmed in the order of appending, and only once they are durable. A broker
that lost the log to another one notices at its next write, fences the log and confirms nothing
more. A ledger is deleted only when every durable cursor has passed it and the record no longer
names it.

It knows neither topics nor sessions: a log notifies its topic through ``LogListener`` and finds the
topic's cursors through ``Readership``.
"""
