"""Counts what happens only where something is full: what small sizes are drawn for (``sizes``).

Little of it is worth a line in an operator's log, so it is told by the methods that deal with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from functools import wraps
from typing import Any

import pytest

from geminga_bookie.entry_logs.open_files import OpenFiles
from geminga_bookie.journal.journals import SpreadJournals
from geminga_bookie.sessions.back_pressure import MemoryBackPressure
from geminga_bookie.sessions.deferred_answers import DeferredAnswers
from geminga_bookie.sessions.long_polls import LongPolls
from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_bookie.storage.ledgers import LedgerTable
from geminga_bookie.storage.read_cache import ReadCache
from geminga_broker.delayed.schedule.message_index import DelayedMessageIndex
from geminga_broker.managed_ledger.cache.entry_cache import EntryCache
from geminga_broker.managed_ledger.cache.read_ahead import ReadAhead
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.reading.log_reader import LogReader
from geminga_broker.sessions.back_pressure import BackPressure
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch.tracking_dispatcher import TrackingDispatcher
from geminga_ledger.connections.outbox import Outbox
from geminga_ledger.entries.read_ahead_cache import ReadAheadCache
from geminga_protocol.bookkeeper.errors import BookieOverloaded
from geminga_simulation.tcp.stream import Endpoint


class Overflow(Enum):
    """What is full, and what comes of it."""

    # Bookies
    MEMORY = "a bookie reads no socket: adds wait for the journal or for a checkpoint"
    READS = "as many reads of a connection wait for the disk as may"
    LEDGERS = "a bookie knows as many ledgers as it may"
    READ_AHEAD = "entries that were read ahead are dropped"
    OPEN_LOGS = "as many entry logs are open as may be"
    SECOND_JOURNAL = "an add goes to a journal that is not the first"
    READERS = "a reader is refused: too many wait for more"
    CONFIRMED = "a bookie remembers of as many ledgers what is confirmed as it may"
    # Clients that write and read ledgers
    TRANSPORT = "a connection to a bookie takes no more bytes"
    SURPLUS = "an entry that was read ahead of a reader is dropped at once"
    # Brokers
    CACHE = "the newest entries are evicted"
    FETCHED = "a dispatcher loses what it has fetched"
    LOG_READERS = "as many ledgers of a log are open to be read as may be"
    PUBLISHED = "a client is not read: too much of it is not durable"
    PUBLISHED_BY_ALL = "a client is not read: too much of all clients is not durable"
    COMMANDS = "a client is not read: too many of its commands are in progress"
    SLOW_CLIENT = "a client does not take what it is sent"
    RANGES = "a cursor has so many holes that it is kept as bits"
    DELAYED = "a bucket of delayed messages is full"
    CONSUMER = "a consumer holds as many unacknowledged messages as it may"
    SUBSCRIPTION = "so do the consumers of a subscription"
    # The network
    WINDOW = "a sender is so far ahead of its receiver that it must wait"


# What is called, and whether it was full then: asked with the object, the arguments, and what came
# of the call (what was returned or raised).
Judge = Callable[..., bool]
PLACES: tuple[tuple[Overflow, type, str, Judge], ...] = (
    (
        Overflow.MEMORY,
        MemoryBackPressure,
        "review",
        lambda pressure, *_: pressure.is_held and not pressure._is_closed,
    ),
    (Overflow.READS, DeferredAnswers, "push", lambda queue, *_: queue.is_full),
    (Overflow.LEDGERS, LedgerTable, "_keep", lambda table, *_: len(table) >= table.ledgers_max),
    (
        Overflow.READ_AHEAD,
        ReadCache,
        "put",
        # The next block like this one has no room.
        lambda cache, _, block, __: (
            cache.used_bytes + sum(map(len, block.values())) > cache.bytes_max
        ),
    ),
    (
        Overflow.OPEN_LOGS,
        OpenFiles,
        "keep",
        lambda files, *_: len(files._files) >= files.files_max,
    ),
    (Overflow.SECOND_JOURNAL, SpreadJournals, "_part", lambda _, number, __: number > 0),
    (
        Overflow.READERS,
        LongPolls,
        "wait",
        lambda *came: isinstance(came[-1], BookieOverloaded),
    ),
    (
        Overflow.CONFIRMED,
        LastConfirmed,
        "_remember",
        lambda known, *_: len(known._answered) >= known.remembered_max,
    ),
    (Overflow.TRANSPORT, Outbox, "pause", lambda *_: True),
    (Overflow.SURPLUS, ReadAheadCache, "keep", lambda surplus, *_: not surplus._entries),
    (Overflow.CACHE, EntryCache, "_make_room", lambda *_: True),
    (Overflow.FETCHED, ReadAhead, "evict", lambda *_: True),
    (
        Overflow.LOG_READERS,
        LogReader,
        "keep",
        lambda log, *_: len(log._readers) >= log._readers_max,
    ),
    (
        Overflow.PUBLISHED,
        BackPressure,
        "review",
        lambda pressure, *_: pressure._pending_bytes > pressure.config.pending_bytes_max,
    ),
    (
        Overflow.PUBLISHED_BY_ALL,
        BackPressure,
        "review",
        lambda pressure, *_: (
            pressure.buffer.pending_bytes > pressure.config.publish_buffer_bytes_max
        ),
    ),
    (
        Overflow.COMMANDS,
        BackPressure,
        "review",
        lambda pressure, *_: pressure.commands > pressure.config.commands_in_progress_max,
    ),
    (Overflow.SLOW_CLIENT, BackPressure, "review", lambda pressure, *_: pressure.is_client_slow),
    (Overflow.RANGES, Cursor, "state", lambda _, state: bool(state.bits)),
    (
        Overflow.DELAYED,
        DelayedMessageIndex,
        "add",
        lambda index, *_: (
            index.open is not None and len(index.open.wheel) >= index.config.bucket_messages_max
        ),
    ),
    (
        Overflow.CONSUMER,
        Consumer,
        "unblock",
        lambda consumer, *_: consumer.is_blocked_on_unacknowledged,
    ),
    (
        Overflow.SUBSCRIPTION,
        TrackingDispatcher,
        "_may_send",
        lambda dispatcher, *_: dispatcher.is_blocked_on_unacknowledged,
    ),
    (Overflow.WINDOW, Endpoint, "_push", lambda stream, *_: stream.backlog_bytes > 0),
)


# What a hundred seeds of a story come to.
OVERFLOWS: dict[str, tuple[Overflow, ...]] = {
    "ledgers": (
        Overflow.MEMORY,
        Overflow.READS,
        Overflow.LEDGERS,
        Overflow.READ_AHEAD,
        Overflow.OPEN_LOGS,
        Overflow.SECOND_JOURNAL,
        Overflow.CONFIRMED,
        Overflow.TRANSPORT,
        Overflow.SURPLUS,
        Overflow.WINDOW,
    ),
    "cluster": (
        Overflow.CACHE,
        Overflow.FETCHED,
        Overflow.LOG_READERS,
        Overflow.PUBLISHED,
        Overflow.PUBLISHED_BY_ALL,
        Overflow.COMMANDS,
        Overflow.RANGES,
    ),
    "messaging": (Overflow.DELAYED, Overflow.CONSUMER, Overflow.SUBSCRIPTION),
    "tailing": (Overflow.READERS,),
}


@contextmanager
def counting_overflows() -> Generator[Counter[Overflow]]:
    """Count meanwhile, in all processes of all worlds."""
    seen = Counter[Overflow]()
    with pytest.MonkeyPatch.context() as patch:
        for overflow, owner, method, is_full in PLACES:
            patch.setattr(owner, method, _counted(seen, overflow, getattr(owner, method), is_full))
        yield seen


def _counted(
    seen: Counter[Overflow], overflow: Overflow, honest: Callable[..., Any], is_full: Judge
) -> Callable[..., Any]:
    @wraps(honest)
    def counted(*told: Any, **named: Any) -> Any:
        try:
            result = honest(*told, **named)
        except Exception as error:
            seen[overflow] += is_full(*told, error)
            raise
        seen[overflow] += is_full(*told, result)
        return result

    return counted
