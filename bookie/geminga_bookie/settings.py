"""What a bookie is told before it starts: where it listens, who it is, and every limit it keeps.

Directories and ``is_synced`` are not here: they belong to the disks, which are given.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_protocol.bookkeeper.v2 import FRAME_BYTES_MAX_DEFAULT

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class GarbageLimits:
    """When to look for garbage, and how much of it is too much. Pulsar's defaults.

    An interval or a threshold of 0 turns off what it is for; ``full_disk_interval_s``, which holds
    while a full disk keeps the bookie read-only, is never 0. A log is compacted when less than the
    threshold of its bytes are of use (0 to 1).
    """

    interval_s: float = 900.0
    over_replicated_interval_s: float = 86_400.0
    minor_interval_s: float = 3_600.0
    minor_threshold: float = 0.2
    major_interval_s: float = 86_400.0
    major_threshold: float = 0.5
    full_disk_interval_s: float = 60.0


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """Used parts of a disk, 0 to 1; Pulsar's defaults. Seconds and bytes as named.

    ``full_at``, ``nearly_full_at`` and ``writable_again_below`` are upstream's diskUsageThreshold,
    diskUsageWarnThreshold and diskUsageLwmThreshold. ``recovery_free_bytes_min`` is what must be
    free for recovery's adds (minUsableSizeForHighPriorityWrites).
    """

    full_at: float = 0.95
    nearly_full_at: float = 0.90
    writable_again_below: float = 0.95
    recovery_free_bytes_min: int = GIB
    check_interval_s: float = 10.0
    # Compact on full disks too: it may free much, or take what is left.
    compacts_when_full: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.writable_again_below <= self.full_at <= 1:
            raise ValueError(
                f"writable_again_below ({self.writable_again_below}) must lie between 0 and "
                f"full_at ({self.full_at}), and that at most at 1"
            )


@dataclass(frozen=True, slots=True)
class BookieSettings:
    """Settings of one bookie; bytes and seconds, as the names say."""

    host: str = "127.0.0.1"
    # 0 takes any free port; the bookie's identity does not depend on it.
    port: int = 3181
    # What clients are told to connect to; ``host`` where it is empty.
    advertised_host: str = ""
    # Empty: the id in the ledger directory's cookie, made up at the first start.
    bookie_id: str = ""
    # What the cookie, messages and metrics say about where the data is; one for each disk given.
    journal_directories: tuple[str, ...] = ("journal",)
    ledger_directories: tuple[str, ...] = ("ledgers",)

    # Client connections that may be open at once, in all and from one address; 0: any number.
    connections_max: int = 0
    connections_per_address_max: int = 0
    # The largest request; Pulsar's brokers send up to 5 MiB and a little.
    frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT
    # Adds that wait for their sync; beyond it no socket is read. Two groups of a fast disk.
    journal_queue_bytes_max: int = 32 * MIB
    # Under load, syncs begin this far apart (see ``pacing``), to be shared by more entries. At
    # 40,000 adds a second 3 ms mean 120 entries a sync, where 25 come by themselves.
    journal_group_interval_max_s: float = 0.003
    # A journal file is closed at this size, and removed once checkpoints have passed it.
    journal_file_bytes_max: int = 64 * MIB
    # Entries in memory that are not in an entry log yet, the part being written included.
    # A checkpoint begins at half of it, so that the other half can fill meanwhile.
    write_cache_bytes_max: int = 64 * MIB
    # With little traffic: how much journal a restart has to replay at the most.
    checkpoint_interval_s: float = 60.0
    # How long to wait after a checkpoint failed: disks that are full get emptied by people.
    checkpoint_retry_s: float = 5.0
    # An entry log is closed at this size. Small ones are given back sooner as ledgers go.
    entry_log_bytes_max: int = 256 * MIB
    # When to look for garbage, and which entry logs to compact.
    garbage: GarbageLimits = field(default_factory=GarbageLimits)
    # What compaction copies in a second; upstream's compactionRateByBytes. 0 for no limit.
    compaction_bytes_per_s: float = 1_000_000.0
    # When ledger disks count as full.
    space: SpaceLimits = field(default_factory=SpaceLimits)
    # Entries that are read with one disk read, and checked together.
    block_bytes: int = 64 * 1024
    # Entries read ahead, for readers that go on.
    read_cache_bytes_max: int = 32 * MIB
    # Start also where entries that were acknowledged are known to be lost, and deny them from then
    # on. Never leave it on: recovery takes a bookie's word for what it never had.
    accepts_lost_entries: bool = False
    # Ledgers whose state is kept in memory: about 300 bytes each.
    ledgers_cached_max: int = 50_000
    # Reads of one connection that wait for the disk; beyond it its socket is not read.
    reads_queued_max: int = 10_000
    # How long each step of a clean stop may take: the last sync, the last answers, the last
    # checkpoint. What is not done by then is replayed at the next start.
    close_timeout_s: float = 1.5
