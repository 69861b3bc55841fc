"""``geminga bookie-admin``: inspects bookies, ledgers and files, and sends commands to bookies.

``commands.bookie_admin`` has the options, and names the functions here.

``cluster``         a running cluster: ZooKeeper, the registered bookies, connections to them
``lists``           bookies, ledgers, under-replicated ledgers, the auditor
``extent``          how far a ledger reaches: confirmed entries, and stored ones beyond them
``read_ledger``     ``read-ledger``; ``verification`` is ``verify-ledger``
``recovery``        moves ledgers off a bookie that will not come back
``cookies``         shows cookies; ``cookie_changes`` restores and deletes them
``orders``          commands to one bookie, over its HTTP
``files``           reads the files of a bookie that need not run
``verdicts``        what is wrong with what was read. Pure

Nothing here writes to a bookie's disk, except ``restore-cookie``, or stores an entry, except
``recover``.
"""
