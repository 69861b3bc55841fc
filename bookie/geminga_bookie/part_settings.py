"""What a bookie process is told: by file, environment or flags (``geminga_server.config``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le

from geminga_autorecovery.part_settings import RecoverySettings
from geminga_bookie.settings import MIB, BookieSettings, GarbageLimits, SpaceLimits
from geminga_server.config import Port

DEFAULTS = BookieSettings()
GARBAGE = DEFAULTS.garbage
SPACE = DEFAULTS.space


@dataclass(frozen=True, slots=True, kw_only=True)
class BookiePartSettings(RecoverySettings):
    """Settings of one bookie process; bytes and seconds as named, port 0 takes a free one."""

    data_directory: Path = Path("data/bookie")
    """Journal, entry logs and index live below it, unless the next settings say otherwise."""
    bind_address: str = "127.0.0.1"
    """Where it listens, for clients and for HTTP; 0.0.0.0 is everywhere."""
    advertised_address: str = ""
    """What clients are told to connect to; empty: the bind address."""
    port: Port = 3181
    """The port of BookKeeper's protocol; 0 takes a free one."""
    http_port: Port = 8000
    """The port of metrics, health and admin; 0 takes a free one."""
    bookie_id: str = ""
    """Its name in the cluster; empty: that of the VERSION files, made up at the first start."""
    journal_directories: tuple[Path, ...] = ()
    """Where journals are, one in each; empty: one below the data directory. Their number stays."""
    ledger_directories: tuple[Path, ...] = ()
    """Where entry logs are; empty: one directory below the data directory. Their number stays."""
    disk_usage_threshold: Annotated[float, Gt(0), Le(1)] = SPACE.full_at
    """A ledger disk used beyond this part is full: no new files; with all full, no adds are taken.
    (diskUsageThreshold)"""
    disk_usage_warn_threshold: Annotated[float, Gt(0), Le(1)] = SPACE.nearly_full_at
    """Major compaction waits while a ledger disk is used beyond this part."""
    disk_usage_lwm_threshold: Annotated[float, Gt(0), Le(1)] = SPACE.writable_again_below
    """A read-only bookie takes adds again when its disks together are used less than this part."""
    disk_check_interval_s: Annotated[float, Gt(0)] = SPACE.check_interval_s
    """How often the ledger disks are looked at."""
    gc_interval_s: Annotated[float, Ge(0)] = GARBAGE.interval_s
    """How often deleted ledgers are looked for (gcWaitTime); 0: only by order or on a full disk."""
    gc_full_disk_interval_s: Annotated[float, Gt(0)] = GARBAGE.full_disk_interval_s
    """The same while the bookie is read-only because of a full disk, where that is sooner."""
    gc_over_replicated_interval_s: Annotated[float, Ge(0)] = GARBAGE.over_replicated_interval_s
    """How often closed ledgers are looked for that have all copies elsewhere; 0: never."""
    minor_compaction_interval_s: Annotated[float, Ge(0)] = GARBAGE.minor_interval_s
    """How often logs are compacted that are nearly empty; 0: never."""
    minor_compaction_threshold: Annotated[float, Ge(0), Le(1)] = GARBAGE.minor_threshold
    """Minor compaction takes logs of which less than this part is of use."""
    major_compaction_interval_s: Annotated[float, Ge(0)] = GARBAGE.major_interval_s
    """How often logs are compacted that are half empty; 0: never."""
    major_compaction_threshold: Annotated[float, Ge(0), Le(1)] = GARBAGE.major_threshold
    """Major compaction takes logs of which less than this part is of use."""
    compaction_bytes_per_s: Annotated[float, Ge(0)] = DEFAULTS.compaction_bytes_per_s
    """What compaction copies in a second (compactionRateByBytes); 0: as fast as it goes."""
    compacts_when_full: bool = SPACE.compacts_when_full
    """Do the compactions that are due also on (nearly) full disks (isForceGCAllowWhenNoSpace).
    Without it a full disk still gets back, in each round, the logs whose copies take at most half
    of what is free; more no compaction ever takes."""
    entry_log_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.entry_log_bytes_max
    """An entry log is closed at this size."""
    auto_recovery_enabled: bool = True
    """Also look for ledgers that lost copies, and copy them (autoRecoveryDaemonEnabled); off where
    `geminga autorecovery` does."""
    accept_lost_entries: bool = False
    """Start once although entry logs are lost for good, and deny what was in them from then on."""
    sync: bool = True
    """Sync before acknowledging; without it a power cut loses acknowledged entries."""
    write_cache_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.write_cache_bytes_max
    """Entries in memory that are not in an entry log yet; a checkpoint begins at half of it."""
    read_cache_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.read_cache_bytes_max
    """Entries in memory that were read ahead."""
    journal_file_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.journal_file_bytes_max
    """A journal file is closed at this size."""

    connections_max: Annotated[int, Ge(0)] = 0
    """How many clients may be connected; 0: as many as the limit on open files (`ulimit -n`)
    leaves room for, which is the most in any case."""
    connections_per_address_max: Annotated[int, Ge(0)] = 0
    """How many connections may come from one address; 0: no limit."""

    def journals(self) -> tuple[Path, ...]:
        """The journal directories."""
        return self.journal_directories or (self.data_directory / "journal",)

    def ledgers(self) -> tuple[Path, ...]:
        """The ledger directories."""
        return self.ledger_directories or (self.data_directory / "ledgers",)

    def bookie(self, connections_max: int = 0) -> BookieSettings:
        """What the bookie itself is told, with the connections for which there is room."""
        return BookieSettings(
            host=self.bind_address,
            port=self.port,
            advertised_host=self.advertised_address,
            bookie_id=self.bookie_id,
            connections_max=connections_max,
            connections_per_address_max=self.connections_per_address_max,
            journal_directories=tuple(map(str, self.journals())),
            ledger_directories=tuple(map(str, self.ledgers())),
            entry_log_bytes_max=self.entry_log_bytes_max,
            compaction_bytes_per_s=self.compaction_bytes_per_s,
            garbage=GarbageLimits(
                interval_s=self.gc_interval_s,
                full_disk_interval_s=self.gc_full_disk_interval_s,
                over_replicated_interval_s=self.gc_over_replicated_interval_s,
                minor_interval_s=self.minor_compaction_interval_s,
                minor_threshold=self.minor_compaction_threshold,
                major_interval_s=self.major_compaction_interval_s,
                major_threshold=self.major_compaction_threshold,
            ),
            space=SpaceLimits(
                full_at=self.disk_usage_threshold,
                nearly_full_at=self.disk_usage_warn_threshold,
                writable_again_below=min(self.disk_usage_lwm_threshold, self.disk_usage_threshold),
                check_interval_s=self.disk_check_interval_s,
                compacts_when_full=self.compacts_when_full,
            ),
            accepts_lost_entries=self.accept_lost_entries,
            write_cache_bytes_max=self.write_cache_bytes_max,
            read_cache_bytes_max=self.read_cache_bytes_max,
            journal_file_bytes_max=self.journal_file_bytes_max,
        )
