"""Functions workers: functions, sources and sinks that run beside a cluster, and what authors of
functions import.

All workers of a cluster join one Failover subscription; the one whose consumer is active leads and
schedules (``cluster``). ``definitions`` makes of what people write what workers keep, ``packages``
stores code, ``runtime`` runs the instances that are assigned to a worker, and ``instance`` is what
runs for one of them, in a thread of its worker or in a process of its own, with ``state``.
``worker.py`` puts a worker together, ``admin`` is its REST side.

Authors of functions import ``function``, ``Function``, ``SerDe`` and its kin from here, and
``geminga_functions.testing`` in their tests.
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
