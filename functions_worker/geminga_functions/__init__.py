"""Functions workers: functions, sources and sinks that run beside a cluster, and what authors of
functions import.

All workers of a cluster join one Failover subscription; the one whose consumer is active leads and
schedules. ``names`` says what is called what; ``instance`` is what runs for one instance of a
function, in a thread of its worker or in a process of its own.

Authors of functions import ``function``, ``Function``, ``SerDe`` and its kin from here, and
``geminga_functions.testing`` in their tests.
"""

from geminga_functions.api import (
    Function,
    IdentitySerDe,
    PickleSerDe,
    Record,
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
    "SerDe",
    "Sink",
    "Source",
    "function",
]
