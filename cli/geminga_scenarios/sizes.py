"""How large caches, queues, buffers and files are: each seed draws it, from production's size to 1.

Large caches and buffers are rarely full, so what happens when they are would rarely be tested. As
FoundationDB draws its knobs, a seed draws sizes of configs: for each field below, three of four
seeds keep the size that it has, the others take one of those in its line. In a quarter of the seeds
every field keeps its size. A line ends with the smallest size with which a cluster still does its
work, however slowly; a field with which a cluster promises less where it is small (such as the
number of producers whose sequence ids are remembered) has no line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from geminga_simulation.run_control import RUN_CONTROL, SIZES
from geminga_simulation.world import World

# That a seed keeps every size; that it keeps the size of one field, where it draws. With every size
# as in production some faults are found that small sizes hide, so those seeds stay.
DEFAULT_PROBABILITY = 0.25
KEPT_PROBABILITY = 0.75
KIB = 1024
MIB = 1024 * KIB

# By a field, or its path with dots: the sizes it may have instead, from the largest to the
# smallest. A name that is no field fails when it is first drawn (``replace``).
Knobs = Mapping[str, Sequence[int]]
ConfigT = TypeVar("ConfigT")

BOOKIE: Knobs = {
    "journal_file_bytes_max": (64 * MIB, 8 * KIB, 1),
    "journal_queue_bytes_max": (8 * KIB, 1),
    "entry_log_bytes_max": (256 * MIB, 16 * KIB, 1),
    "write_cache_bytes_max": (64 * MIB, 16 * KIB, 2 * KIB),
    "read_cache_bytes_max": (16 * KIB, 1),
    "block_bytes": (64 * KIB, 512, 1),
    "ledgers_cached_max": (4, 1),
    "reads_queued_max": (8, 1),
    "entry_log_batch_bytes": (4 * KIB, 1),
    "entry_logs_open_max": (3, 1),
    "block_moves_max": (2, 1),
    "long_polls_max": (3, 1),
    "confirmed_remembered_max": (3, 1),
}
# How many journals and ledger directories a bookie has.
JOURNALS: Sequence[int] = (2, 3)
LEDGER_DIRECTORIES: Sequence[int] = (2,)
AUTO_RECOVERY: Knobs = {
    "rereplication_entry_batch_size": (100, 3, 1),
    "copy_batch_bytes_max": (4 * KIB, 1),
    "ledgers_deferred_max": (3, 1),
    "metadata_reads_max": (3, 1),
    "ledger_checks_max": (2, 1),
}
LEDGERS: Knobs = {
    "write_buffer_bytes_high": (4 * KIB, 0),
    "unsent_bytes_max": (16 * KIB, 4 * KIB),
    "reads_in_flight_max": (5, 1),
    "read_ahead_bytes_max": (4 * KIB, 0),
    "recovery_batch_entries": (3, 1),
}
BROKER: Knobs = {
    "cache.cache_bytes_max": (16 * KIB, 1),
    "policies.log.ledger_bytes_max": (8 * KIB, KIB),
    "policies.log.ledger_entries_max": (100, 3, 1),
    "policies.log.cursor_ledger_entries_max": (50_000, 3, 1),
    "policies.log.cursor_ranges_max": (3, 1),
    "policies.log.read_bytes_max": (2 * KIB, 1),
    "policies.log.read_entries_max": (7, 1),
    "policies.log.fetched_bytes_max": (4 * KIB, 1),
    "policies.log.readers_max": (2, 1),
    "policies.publishing.deduplication_snapshot_entries": (1000, 1),
    "policies.delayed.bucket_messages_min": (50_000, 2),
    "policies.delayed.bucket_messages_max": (20, 3),
    "policies.delayed.segment_messages_max": (5000, 1),
    "sessions.concurrent_lookup_requests_max": (3, 1),
    "sessions.pending_bytes_max": (KIB, 0),
    "sessions.publish_buffer_bytes_max": (2 * KIB, 0),
    "sessions.commands_in_progress_max": (3, 0),
    "sessions.unflushed_bytes_max": (2 * KIB, 0),
    "sessions.write_buffer_bytes_high": (2 * KIB, 0),
    "replication.pending_messages_max": (5, 1),
}
# For brokers whose consumers acknowledge all that they receive. Others would soon hold as many as
# they may, and receive nothing more.
UNACKNOWLEDGED: Knobs = {
    "policies.unacknowledged.max_unacked_messages_per_consumer": (20, 1),
    "policies.unacknowledged.max_unacked_messages_per_subscription": (30, 3),
}
PROXY: Knobs = {"concurrent_lookup_requests_max": (3, 1), "lookup_redirects_max": (3, 2)}
# The bytes that all producers of a client may hold together. Half of it has room for a message of
# each producer: with less they would block each other.
CLIENT_MEMORY_BYTES: Sequence[int] = (8 * KIB, 256)
# How many brokers a client's lookup asks in a row. With two, a lookup that the leader redirects
# reaches the owner only where it began at the leader, which clients ask when its turn comes.
CLIENT_REDIRECTS: Sequence[int] = (3, 2)
# The bytes of a stream that are on their way or unread.
WINDOW_BYTES: Sequence[int] = (8 * KIB, 4 * KIB, KIB)


def drawn(config: ConfigT, knobs: Knobs, random: Random) -> ConfigT:
    """Return ``config`` with some of the fields of ``knobs`` changed."""
    # In the order of the lines: a line that is added or moved changes what seeds draw after it.
    for field, values in knobs.items():
        if random.random() >= KEPT_PROBABILITY:
            config = _replaced(config, field.split("."), random.choice(values))
    return config


def _replaced(config: Any, path: Sequence[str], value: int) -> Any:  # noqa: ANN401 -- any dataclass
    """``config`` with ``value`` in the field at ``path``, which may lie in a config inside it."""
    name, *rest = path
    inner = _replaced(getattr(config, name), rest, value) if rest else value
    return replace(config, **{name: inner})


class DrawnSizes:
    """The sizes in one world.

    A config has a stream of chance of its own: its sizes do not depend on what was drawn before, so
    a process that is started again has those it had.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        # Drawn also where the menu is ordered, which says whether the sizes are served. One draw
        # for all: seeds with production's sizes in all fields are a quarter.
        self.are_drawn = world.loop.stream("sizes").random() >= DEFAULT_PROBABILITY
        control = RUN_CONTROL.get(None)
        if control is not None:
            if control.menu is not None:
                self.are_drawn = SIZES in control.menu
            # Noted in any case: a tool that repeats the run must order the same.
            control.has_sizes = self.are_drawn

    def of(self, config: ConfigT, knobs: Knobs) -> ConfigT:
        """``config`` with the sizes of this world."""
        if not self.are_drawn:
            return config
        return drawn(config, knobs, self._world.loop.stream(f"sizes of {type(config).__name__}"))

    def number(self, name: str, default: int, others: Sequence[int]) -> int:
        """A size that is no field of a config."""
        if not self.are_drawn:
            return default
        # From a stream of its own, as a config: other sizes do not shift it.
        random = self._world.loop.stream(f"size of {name}")
        return default if random.random() < KEPT_PROBABILITY else random.choice(others)
