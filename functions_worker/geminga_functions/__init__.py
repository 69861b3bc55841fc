"""Functions workers, which run functions, sources and sinks beside a cluster of brokers.

A worker needs nothing but brokers: all that workers know is in topics. To be read in this order:

- ``definitions`` turns the configs of users into the details that workers store; ``packages``
  stores the code;
- ``cluster`` elects a leader among the workers, which decides what runs where;
- ``runtime`` runs the instances that are assigned to a worker, as long as the worker has a lease;
- ``instance`` is one running instance, in a thread of its worker or in a process of its own, with
  the ``state`` of its function;
- ``worker`` puts a worker together, ``admin`` is its REST interface, ``part`` its process.

An instance never runs twice at the same time, and a message is acknowledged only after what came of
it is stored, unless its function asks for less.

Authors of functions import ``function``, ``Function``, ``SerDe`` and the like from here, and
``geminga_functions.testing`` in their tests. What they import, and what runs in the environment of
a function, knows no dependency of servers.
"""

from geminga_functions.api import (
    Function,
    IdentitySerDe,
    PickleSerDe,
    Record,
    SecretsProvider,
    SerDe,
    Sink,
    Source,
    function,
)

__all__ = [
    "Function",
    "IdentitySerDe",
    "PickleSerDe",
    "Record",
    "SecretsProvider",
    "SerDe",
    "Sink",
    "Source",
    "function",
]
