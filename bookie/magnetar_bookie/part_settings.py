"""What a bookie process is told: by file, environment or flags (``magnetar_server.settings``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le

from magnetar_autorecovery.part_settings import Port, RecoverySettings
from magnetar_bookie.settings import MIB, BookieSettings, GarbageLimits, SpaceLimits

DEFAULTS = BookieSettings()
GARBAGE = DEFAULTS.garbage
SPACE = DEFAULTS.space


@dataclass(frozen=True, slots=True, kw_only=True)
class BookiePartSettings(RecoverySettings):
    """Settings of one bookie process; bytes and seconds as named, port 0 takes a free one."""

    # Journal, entry logs and index live below it.
    data_directory: Path = Path("data/bookie")
    zookeeper: str = "127.0.0.1:2181"
    zookeeper_session_timeout_s: Annotated[float, Gt(0)] = 6.0
    # So long does a starting bookie wait for ZooKeeper.
    zookeeper_connect_timeout_s: Annotated[float, Gt(0)] = 30.0
    bind_address: str = "127.0.0.1"
    # What clients are told to connect to; ``bind_address`` where it is empty.
    advertised_address: str = ""
    port: Port = 3181
    # Metrics and health.
    http_port: Port = 8000
    # Empty: the id in the data directory's cookie, made up at the first start.
    bookie_id: str = ""
    # Where journals and entry logs are; several to spread them over disks. Empty: one of each
    # below ``data_directory``. A bookie keeps the number that it was made with.
    journal_directories: tuple[Path, ...] = ()
    ledger_directories: tuple[Path, ...] = ()
    # Used parts of a ledger disk: a full one gets no new files; when all are, the bookie is
    # read-only until they are used less than the low-water mark (upstream's diskUsageThreshold,
    # diskUsageWarnThreshold, diskUsageLwmThreshold, diskCheckInterval).
    disk_usage_threshold: Annotated[float, Gt(0), Le(1)] = SPACE.full_at
    disk_usage_warn_threshold: Annotated[float, Gt(0), Le(1)] = SPACE.nearly_full_at
    disk_usage_lwm_threshold: Annotated[float, Gt(0), Le(1)] = SPACE.writable_again_below
    disk_check_interval_s: Annotated[float, Gt(0)] = SPACE.check_interval_s
    # Garbage collection under upstream's names (gcWaitTime and so on); an interval or threshold of
    # 0 turns that part off.
    gc_interval_s: Annotated[float, Ge(0)] = GARBAGE.interval_s
    gc_over_replicated_interval_s: Annotated[float, Ge(0)] = GARBAGE.over_replicated_interval_s
    minor_compaction_interval_s: Annotated[float, Ge(0)] = GARBAGE.minor_interval_s
    minor_compaction_threshold: Annotated[float, Ge(0), Le(1)] = GARBAGE.minor_threshold
    major_compaction_interval_s: Annotated[float, Ge(0)] = GARBAGE.major_interval_s
    major_compaction_threshold: Annotated[float, Ge(0), Le(1)] = GARBAGE.major_threshold
    compaction_bytes_per_s: Annotated[float, Ge(0)] = DEFAULTS.compaction_bytes_per_s
    compacts_when_full: bool = SPACE.compacts_when_full
    entry_log_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.entry_log_bytes_max
    # Whether the bookie also looks for ledgers that lost copies, and copies them
    # (autoRecoveryDaemonEnabled); off where processes of their own do.
    auto_recovery_enabled: bool = True
    # Start once although entry logs are lost for good, and deny what was in them from then on.
    accept_lost_entries: bool = False
    # Without it a power cut loses acknowledged entries.
    sync: bool = True
    write_cache_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.write_cache_bytes_max
    read_cache_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.read_cache_bytes_max
    journal_file_bytes_max: Annotated[int, Ge(MIB)] = DEFAULTS.journal_file_bytes_max
    log_level: str = "INFO"
    log_json: bool = False

    def journals(self) -> tuple[Path, ...]:
        """The journal directories."""
        return self.journal_directories or (self.data_directory / "journal",)

    def ledgers(self) -> tuple[Path, ...]:
        """The ledger directories."""
        return self.ledger_directories or (self.data_directory / "ledgers",)

    def bookie(self) -> BookieSettings:
        """What the bookie itself is told."""
        return BookieSettings(
            host=self.bind_address,
            port=self.port,
            advertised_host=self.advertised_address,
            bookie_id=self.bookie_id,
            journal_directories=tuple(map(str, self.journals())),
            ledger_directories=tuple(map(str, self.ledgers())),
            entry_log_bytes_max=self.entry_log_bytes_max,
            compaction_bytes_per_s=self.compaction_bytes_per_s,
            garbage=GarbageLimits(
                interval_s=self.gc_interval_s,
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
