"""The storage server: keeps ledger entries, and knows nothing of topics.

What happens to an entry, and in which room:

``sessions``      ``session`` takes frames from a connection and answers them, with one journal
                  hand-over per read; ``reads`` answers from the disk, ``rare_requests`` all but V2
                  adds and reads, ``v3`` the third version's; ``long_polls`` waits for what
                  ``last_confirmed`` can tell; ``intake`` holds the sockets when too much waits
``journal``       makes groups of adds durable with one sync each, then lets them be answered;
                  ``pacing`` decides when; ``journals`` makes several of them look like one;
                  ``replay`` brings back after a crash what only the journal has
``storage``       admit, find, fetch: ``write_cache`` keeps what is not yet in an entry log,
                  ``checkpoint`` carries it to the ``entry_log`` and the ``index`` and trims the
                  journal, ``rebuild`` brings back a lost index
``garbage``       the ``collector`` has ledgers forgotten that are gone (``ledger_deletion``), as
                  ``garbage`` decides; ``compaction`` gives entry logs back of which little is of
                  use
``disks``         the ``directories`` and their ``paths``, ``identity`` (the bookie's stable id and
                  its cookie), and how full they are: ``space_watch`` looks, ``space`` says what
                  follows
``formats``       the layouts of the files, drawn
``registration``  where this bookie is, in ZooKeeper
``admin``         the HTTP side, for people and tools
``bookie``        puts the rooms together; ``part`` makes a process of it
"""
