"""What auto-recovery reads and writes in ZooKeeper: the records that all daemons share.

``underreplication_marks`` is the list of ledgers to repair, ``claims`` the locks on them while a
worker repairs (``ledger_locks``), ``controls`` the switches of operators. ``ledger_list`` and
``live_bookies`` list what there is; ``watches`` notices changes, and ``children`` reads nodes that
may be missing.
"""

# Below /ledgers (the paths are constants of ``geminga_protocol.records``):
#
#     dd/dddd/Ldddd                        a ledger's metadata, by the digits of its id
#     available/<bookie>                   a writable bookie, ephemeral
#     available/readonly/<bookie>          one that can only be read from, ephemeral
#     cookies/<bookie>                     every bookie that ever started and was not removed
#     underreplication/
#         LAYOUT                           the version of all that follows
#         ledgers/<4 levels>/urL<ledger>   a mark: this ledger lacks copies on these bookies
#         locks/urL<ledger>                a lock, ephemeral: a worker repairs this ledger
#         disable                          where it exists, auto-recovery does nothing
#         lostBookieRecoveryDelay          the grace of a lost bookie, in seconds
#         checkallledgersctime, …          when each kind of check was last finished
#         auditorelection/V_<number>       the votes for an auditor, ephemeral
#         leader                           the auditor, for Pulsar's daemons, ephemeral
