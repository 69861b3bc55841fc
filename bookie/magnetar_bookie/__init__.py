"""The storage server: keeps ledger entries, and knows nothing of topics.

What happens to an entry, and in which room:

``session``       takes frames from a connection, answers them; one journal hand-over per read;
                  ``reads`` answers from the disk, ``rare_requests`` all but V2 adds and reads
``v3``            V3 requests: ``v3_adds``, ``v3_reads``; ``long_polls`` waits for what
                  ``last_confirmed`` can tell
``journal``       makes groups of adds durable with one sync each, then lets them be answered;
                  ``pacing`` decides when, ``intake`` holds the sockets when too much waits;
                  ``journals`` makes several of them look like one
``write_cache``   keeps what is not yet in an entry log, ledger by ledger
``checkpoint``    carries the write cache to the ``entry_log`` and the ``index``, trims the journal
``storage``       the interface over all of these: admit, fence, find, fetch
``collector``     forgets ledgers that are gone, as ``garbage`` decides; ``compaction`` gives entry
                  logs back of which little is of use, found by ``log_scan``
``space_watch``   looks how full the disks of the ``directories`` are; ``space`` says what follows
``replay``        brings back after a crash what only the journal has; ``rebuild`` a lost index
``identity``      who this bookie is: its stable id and its cookie; ``registration``: where it is
``bookie``        puts the rooms together; ``part`` makes a process of it
"""
