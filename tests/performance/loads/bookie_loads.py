"""The loads a bookie is measured under by itself: adds, reads of what no memory holds, restarts.

Entries of 1 KB are messages as they come; entries of 100 KB are batches of 100 of them, as most
producers make them.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import uvloop
from tests.performance.loads.bookie_client import EntryAddress, add, read, read_batches
from tests.performance.loads.measure import Figures, Measure, Phases, percentiles
from tests.performance.rivals.bookies import (
    METRICS_INTERVAL_S,
    BookieKind,
    RunningBookie,
    started_bookie,
)
from tests.performance.rivals.program import forget_pages
from tests.performance.rivals.servers import Ports

ENTRY_BYTES = 1024
BATCH_BYTES = 100 * ENTRY_BYTES

# Adds.
PIPELINED_ENTRIES = 200_000
WINDOW = 5_000
PACED_RATE = 20_000
PACED_S = 5
SINGLE_ENTRIES = 2_000
# Metrics show all that was done after so many of their intervals.
SETTLE_INTERVALS = 1.5

# Reads. On the disk are so many entries of 1 KB, and 250 MB of batches, the first of which warm up.
STORED_ENTRIES = 1_000_000
LEDGER_ENTRIES = 200_000
STORED_BATCHES = 2_500
WARM_UP_BATCHES = 500
BATCH_WINDOW = 20
# Entries asked for with one request, as brokers do (dispatcherMaxReadBatchSize).
NEIGHBOURS = 100
NEIGHBOURS_WINDOW = 10
RANDOM_READS = 1_000
# What the journal alone has when the bookie is killed.
KILLED_ENTRIES = 20_000


@dataclass(slots=True)
class LoadedBookie:
    """A bookie under load, and what it has been given so far; stopped and started as need be."""

    kind: BookieKind
    directory: Path
    zookeeper: str
    ports: Ports = field(default_factory=Ports.free)
    # How many entries each ledger has, in the order in which they were added: of 1 KB, of 100 KB.
    small: dict[int, int] = field(default_factory=dict[int, int])
    large: dict[int, int] = field(default_factory=dict[int, int])
    _stack: ExitStack = field(default_factory=ExitStack)
    _running: RunningBookie | None = None

    @property
    def bookie(self) -> RunningBookie:
        """It, while it runs."""
        assert self._running is not None
        return self._running

    def start(self) -> None:
        """Start it, without waiting."""
        started = started_bookie(self.kind, self.directory, self.zookeeper, self.ports)
        self._running = self._stack.enter_context(started)

    def stop(self) -> None:
        """Stop it as an init system would."""
        self._running = None
        self._stack.close()

    def kill(self) -> None:
        """``kill -9``."""
        self.bookie.program.kill()
        self.stop()

    def add(self, entries: int, entry_bytes: int, *, window: int = 1, rate: int = 0) -> list[float]:
        """Add a ledger; the milliseconds that each burst of adds took."""
        ledger_id = len(self.small) + len(self.large)
        took_ms: list[float] = uvloop.run(
            add(self.ports.bookie, ledger_id, entries, entry_bytes, window=window, rate=rate)
        )
        (self.small if entry_bytes == ENTRY_BYTES else self.large)[ledger_id] = entries
        return took_ms

    @property
    def last_entry(self) -> EntryAddress:
        """The last entry of 1 KB that was added."""
        ledger_id, entries = list(self.small.items())[-1]
        return ledger_id, entries - 1


@contextmanager
def loaded(kind: BookieKind, directory: Path, zookeeper: str) -> Generator[LoadedBookie]:
    """A bookie that serves."""
    bookie = LoadedBookie(kind, directory, zookeeper)
    bookie.start()
    try:
        bookie.bookie.wait_until_answering()
        yield bookie
    finally:
        bookie.stop()


def adds(loaded: LoadedBookie, scale: float) -> Phases:
    """As many as it takes, then at a rate, then one at a time."""
    return {
        "full": _full(loaded, int(PIPELINED_ENTRIES * scale)),
        "paced": _paced(loaded, int(PACED_RATE * PACED_S * scale)),
        "single": _single(loaded, int(SINGLE_ENTRIES * scale)),
    }


def _full(loaded: LoadedBookie, entries: int) -> Figures:
    """What is not in entry logs at the end was there at the beginning: it evens out."""
    with Measure(loaded.bookie) as measure:
        loaded.add(entries, ENTRY_BYTES, window=WINDOW)
    return measure.figures(entries)


def _paced(loaded: LoadedBookie, entries: int) -> Figures:
    before = _settled_syncs(loaded.bookie)
    with Measure(loaded.bookie) as measure:
        took_ms = loaded.add(entries, ENTRY_BYTES, rate=PACED_RATE)
    syncs = _settled_syncs(loaded.bookie) - before
    return measure.figures(entries) | percentiles(took_ms) | {"per_sync": entries / syncs}


def _settled_syncs(bookie: RunningBookie) -> float:
    time.sleep(SETTLE_INTERVALS * METRICS_INTERVAL_S)
    return bookie.syncs()


def _single(loaded: LoadedBookie, entries: int) -> Figures:
    with Measure(loaded.bookie) as measure:
        took_ms = loaded.add(entries, ENTRY_BYTES)
    return measure.figures(entries) | percentiles(took_ms)


def reads(loaded: LoadedBookie, scale: float) -> Phases:
    """Restart with much on the disk, then read: forwards, and here and there; restart once more."""
    _fill(loaded, scale)
    phases: Phases = {"restart": _restart(loaded)}
    warm_up = int(WARM_UP_BATCHES * scale)
    _read_batches(loaded, range(warm_up))
    phases["sequential"] = _read_batches(loaded, range(warm_up, int(STORED_BATCHES * scale)))
    phases["neighbours"] = _read_neighbours(loaded)
    phases["random"] = _read_random(loaded, int(RANDOM_READS * scale))
    loaded.add(int(KILLED_ENTRIES * scale), ENTRY_BYTES, window=WINDOW)
    loaded.kill()
    phases["killed"] = _started_again(loaded)
    return phases


def _fill(loaded: LoadedBookie, scale: float) -> None:
    while (missing := int(STORED_ENTRIES * scale) - sum(loaded.small.values())) > 0:
        loaded.add(min(missing, LEDGER_ENTRIES), ENTRY_BYTES, window=WINDOW)
    if not loaded.large:
        loaded.add(int(STORED_BATCHES * scale), BATCH_BYTES, window=BATCH_WINDOW)


def _restart(loaded: LoadedBookie) -> Figures:
    loaded.stop()
    return _started_again(loaded)


def _started_again(loaded: LoadedBookie) -> Figures:
    """Nothing of its files is in memory when it starts."""
    forget_pages(loaded.directory)
    loaded.start()
    seconds = loaded.bookie.wait_until_read(loaded.last_entry)
    return {"ready_s": seconds, "cpu_s": loaded.bookie.cpu_s()}


def _read_batches(loaded: LoadedBookie, entries: range) -> Figures:
    (ledger_id,) = loaded.large
    addresses = [(ledger_id, entry_id) for entry_id in entries]
    with Measure(loaded.bookie) as measure:
        uvloop.run(read(loaded.ports.bookie, addresses, window=BATCH_WINDOW))
    return measure.figures(len(entries)) | measure.volume(len(entries) * BATCH_BYTES)


def _read_neighbours(loaded: LoadedBookie) -> Figures:
    """Entries of 1 KB one after the other, each request for many of them."""
    ledger_id = max(loaded.small, key=lambda each: loaded.small[each])
    entries = loaded.small[ledger_id]
    with Measure(loaded.bookie) as measure:
        uvloop.run(
            read_batches(
                *(loaded.ports.bookie, ledger_id, entries),
                batch_entries=NEIGHBOURS,
                window=NEIGHBOURS_WINDOW,
            )
        )
    return measure.figures(entries) | measure.volume(entries * ENTRY_BYTES)


def _read_random(loaded: LoadedBookie, count: int) -> Figures:
    """One at a time, each anywhere."""
    random = Random(1)
    ledgers, sizes = list(loaded.small), list(loaded.small.values())
    chosen = random.choices(ledgers, weights=sizes, k=count)
    addresses = [(ledger_id, random.randrange(loaded.small[ledger_id])) for ledger_id in chosen]
    with Measure(loaded.bookie) as measure:
        took_ms = uvloop.run(read(loaded.ports.bookie, addresses))
    return measure.figures(count) | percentiles(took_ms)
