"""The storage server: keeps ledger entries durably, and knows nothing of topics.

Its rooms, in the order in which an entry meets them:

``sessions``      a client's connection: adds go to the write cache and the journal, and are
                  answered when they are durable; reads are answered from memory or the disk
``journal``       the write-ahead log: makes groups of adds durable with one sync each
``storage``       who may add, what is fenced, where an entry is found. ``checkpoint`` carries
                  entries from memory to the entry logs and the index, and trims the journal
``entry_logs``    the files that hold entries for good
``index``         which block of which entry log holds an entry
``garbage``       deletes the ledgers that are gone, and gives their room back

``formats``       the layouts of all files, drawn
``decisions``     what is decided apart from doing it: pacing, garbage, full disks
``disks``         the directories, the bookie's identity, and how full the disks are
``registration``  where this bookie is, in ZooKeeper
``admin``         the HTTP side, for people and tools
``bookie``        puts the rooms together; ``part`` makes a process of it

What it promises: an entry whose add was answered with success is there after any crash of the
process or the machine; a ledger whose fence was answered takes no normal adds any more; and damage
on a disk is an error for the reader, never an answer that an entry does not exist.
"""
