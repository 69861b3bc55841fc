"""What all sessions of a bookie share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from geminga_bookie.config import BookieConfig
from geminga_bookie.counters import Counters
from geminga_bookie.journal.journals import JournalWriter
from geminga_bookie.sessions.back_pressure import MemoryBackPressure
from geminga_bookie.sessions.deferred_answers import Spawn
from geminga_bookie.sessions.long_polls import LongPolls
from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_bookie.storage.storage import Storage
from geminga_server.authorization import Authorize, Resource
from geminga_server.connection_limits import ConnectionLimits

if TYPE_CHECKING:
    from ssl import SSLContext


class DiskSpace(NamedTuple):
    """The room of all ledger directories together."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What all sessions of a bookie share."""

    # Made once, when the bookie begins to listen, and the same for every connection.
    config: BookieConfig
    storage: Storage
    journal: JournalWriter
    counters: Counters
    back_pressure: MemoryBackPressure
    # How many connections there may be, in all and from one address.
    limits: ConnectionLimits
    last_confirmed: LastConfirmed
    long_polls: LongPolls
    spawn: Spawn
    # Called when a read of a socket brought adds.
    after_adds: Callable[[], None]
    # Raises ``OSError``.
    disk_space: Callable[[], DiskSpace]
    # A client that may speak to a bookie may add to and read every ledger whose key it knows:
    # BookKeeper has no finer rights. So each connection is authorized once, for ``resource``.
    authorize: Authorize
    resource: Resource
    # Secures the connections whose clients ask for it; None: none can.
    tls: SSLContext | None = None
