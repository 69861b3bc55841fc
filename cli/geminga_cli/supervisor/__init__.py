"""Runs the parts of a cluster on one machine: starts them, restarts those that fail, stops them.

``lifecycle``     decides what to start, release, end or kill next. Pure
``supervisor``    acts: processes, timers, signals, the control channel
``process``       one child process, which dies with the supervisor
``watch``         reports to the event loop when a child process ends
``parts``         how each part's process is started
``plan``          which parts a cluster has, on which ports, with which options
``settings``      the settings of ``standalone`` and ``cluster``, and of the parts in the same file
``broker_ids``    the ids under which former brokers of this data may still be in ZooKeeper
``run``           a supervisor from its start to its end, with what it prints and writes
``endpoints``     the addresses of all parts, for people and programs: DATA/endpoints.json
``console``       what is printed: READY, and what to try next
``metrics_page``  ``/metrics`` for ZooKeeper and the supervisor itself
``operators``     what `geminga cluster` asks of a running supervisor
``geo``           several clusters that replicate to each other

The supervisor may import no part of a cluster, nor anything else that is large: it lives as long as
its cluster, and has no threads. What it starts, the parts themselves must not know.
"""
