"""A whole cluster in one thread, in virtual time, from a seed: for our tests and for users'.

Servers take the time, the network, disks and ZooKeeper through their constructors
(``geminga_runtime``). Here are twins of all four in memory, and the faults that befall them. In
reading order:

* ``event_loop``: the loop, its timers, and incarnations, the lives of simulated processes.
* ``tcp``, ``disk``, ``zookeeper``: the twins.
* ``host`` and ``world``: machines that run processes, and everything around them.
* ``conditions``, ``fault_menu`` and ``fault_injector``: what goes wrong, how often, and when.
* ``histories``: checkers of what clients were told. They are pure.
* ``simulate`` runs one coroutine from a seed; ``run_control`` repeats a run with other faults.

The same seed gives the same run, to the last byte, in every process on every machine. Nothing here
knows what a topic or a ledger is.
"""
