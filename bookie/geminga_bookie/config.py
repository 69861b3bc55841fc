"""The settings of a bookie: where it listens, which bookie it is, and every limit it keeps.

The defaults are Pulsar's where it has them. A setting's docstring is its help; settings that are
``INTERNAL`` are not offered to users, and have comments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le

from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_protocol.bookkeeper.codes import FRAME_BYTES_MAX_DEFAULT
from geminga_server.config import INLINE, INTERNAL, ConnectionConfig, PartConfig, Port, Upstream
from geminga_server.tls.config import TlsConfig

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageConfig:
    """When garbage is collected, and how much of it is too much.

    An interval or a threshold of 0 turns off what it is for.
    """

    gc_interval_s: Annotated[float, Ge(0), Upstream("gcWaitTime", 0.001, of="BookKeeper")] = 900.0
    """How often the bookie looks for deleted ledgers; 0: only on request or on a full disk."""
    gc_full_disk_interval_s: Annotated[float, Gt(0)] = 60.0
    """The same while the bookie is read-only because of a full disk, where that is sooner."""
    gc_fences_kept_s: Annotated[float, Ge(0)] = 3_600.0
    """How long a fenced ledger is kept after its deletion. Must be longer than a broker serves its
    topics without ZooKeeper, which is half an hour."""
    gc_over_replicated_interval_s: Annotated[float, Ge(0)] = 86_400.0
    """How often the bookie looks for closed ledgers that have all copies elsewhere; 0: never."""
    minor_compaction_interval_s: Annotated[float, Ge(0)] = 3_600.0
    """How often the bookie compacts logs that are nearly empty; 0: never."""
    minor_compaction_threshold: Annotated[float, Ge(0), Le(1)] = 0.2
    """Minor compaction takes logs of which less than this part is in use."""
    major_compaction_interval_s: Annotated[float, Ge(0)] = 86_400.0
    """How often the bookie compacts logs that are half empty; 0: never."""
    major_compaction_threshold: Annotated[float, Ge(0), Le(1)] = 0.5
    """Major compaction takes logs of which less than this part is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceConfig:
    """When ledger disks count as full; used parts of a disk are 0 to 1."""

    disk_usage_threshold: Annotated[
        float, Gt(0), Le(1), Upstream("diskUsageThreshold", of="BookKeeper")
    ] = 0.95
    """A ledger disk used beyond this part is full: no new files; with all full, no adds are
    taken."""
    disk_usage_warn_threshold: Annotated[float, Gt(0), Le(1)] = 0.90
    """Major compaction waits while a ledger disk is used beyond this part."""
    disk_usage_lwm_threshold: Annotated[float, Gt(0), Le(1)] = 0.95
    """A read-only bookie takes adds again when its disks together are used less than this part."""
    disk_check_interval_s: Annotated[float, Gt(0)] = 10.0
    """How often the bookie measures its ledger disks."""
    compacts_when_full: Annotated[bool, Upstream("isForceGCAllowWhenNoSpace", of="BookKeeper")] = (
        False
    )
    """Run compactions that are due on (nearly) full disks too. Without it, each round on a full
    disk still compacts the logs whose copies take at most half of what is free; no compaction ever
    takes more."""
    # What must be free for recovery's adds (minUsableSizeForHighPriorityWrites).
    recovery_free_bytes_min: Annotated[int, INTERNAL] = GIB

    @property
    def low_water_mark(self) -> float:
        """The used part below which a read-only bookie takes adds again.

        At most that of a full disk, or the bookie would change its mind at each check.
        """
        return min(self.disk_usage_lwm_threshold, self.disk_usage_threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieTlsConfig(TlsConfig):
    """TLS of a bookie. Clients ask for it on the bookie's one port (START_TLS), or go on without
    it."""

    certificate_file: Annotated[str, Upstream("tlsCertificatePath", of="BookKeeper")] = ""
    """The bookie's certificate, with those between it and the authority; empty: no TLS."""
    key_file: Annotated[str, Upstream("tlsKeyStore", of="BookKeeper")] = ""
    """Its key, not encrypted; empty: it stands in the file of the certificate."""
    trust_file: Annotated[str, Upstream("tlsTrustStore", of="BookKeeper")] = ""
    """The certificates of the authorities that may sign clients' certificates; empty: clients are
    asked for none."""
    require_client_certificate: Annotated[
        bool, Upstream("tlsClientAuthentication", of="BookKeeper")
    ] = False
    """Refuse TLS to clients that show no certificate which an authority of the trust file signed.
    """
    refresh_s: Annotated[
        float, Gt(0), Upstream("tlsCertFilesRefreshDurationSeconds", of="BookKeeper")
    ] = 300.0
    """How often the bookie checks whether the files have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig(PartConfig):
    """The settings of one bookie; bytes and seconds as named, port 0 takes a free one."""

    auto_recovery: Annotated[AutoRecoveryConfig, INLINE] = field(default_factory=AutoRecoveryConfig)
    data_directory: Path = Path("data/bookie")
    """Journal, entry logs and index live below it, unless the next settings say otherwise."""
    bind_address: str = "127.0.0.1"
    """Where it listens, for clients and for HTTP; 0.0.0.0 is everywhere."""
    advertised_address: str = ""
    """The address that clients connect to; empty: the bind address."""
    port: Port = 3181
    """The port of BookKeeper's protocol; 0 takes a free one."""
    http_port: Port = 8000
    """The port of metrics, health and admin; 0 takes a free one."""
    tls: BookieTlsConfig = field(default_factory=BookieTlsConfig)
    bookie_id: str = ""
    """Its id in the cluster; empty: that of the VERSION files, made up at the first start."""
    journal_directories: tuple[Path, ...] = ()
    """Where journals are, one in each; empty: one below the data directory. Their number stays."""
    ledger_directories: tuple[Path, ...] = ()
    """Where entry logs are; empty: one directory below the data directory. Their number stays."""
    space: Annotated[SpaceConfig, INLINE] = field(default_factory=SpaceConfig)
    garbage: Annotated[GarbageConfig, INLINE] = field(default_factory=GarbageConfig)
    compaction_bytes_per_s: Annotated[
        float, Ge(0), Upstream("compactionRateByBytes", of="BookKeeper")
    ] = 1_000_000.0
    """How many bytes compaction copies in a second; 0: no limit."""
    entry_log_bytes_max: Annotated[int, Ge(MIB)] = 256 * MIB
    """An entry log is closed at this size; small ones are freed sooner as ledgers are deleted."""
    auto_recovery_enabled: Annotated[
        bool, Upstream("autoRecoveryDaemonEnabled", of="BookKeeper")
    ] = True
    """Find ledgers that lost copies and copy them; off where `geminga autorecovery` does that."""
    accept_lost_entries: bool = False
    """Start although entry logs are lost for good, and answer from then on that their entries never
    existed. Never leave it on: ledger recovery believes such answers."""
    sync: bool = True
    """Sync before acknowledging; without it a power cut loses acknowledged entries."""
    write_cache_bytes_max: Annotated[int, Ge(MIB)] = 64 * MIB
    """Entries in memory that are not in an entry log yet, the part being written included; a
    checkpoint begins at half of it, so that the other half can fill meanwhile."""
    read_cache_bytes_max: Annotated[int, Ge(MIB)] = 32 * MIB
    """Entries in memory that were read ahead."""
    journal_file_bytes_max: Annotated[int, Ge(MIB)] = 64 * MIB
    """A journal file is closed at this size, and removed once checkpoints have passed it."""
    connections: Annotated[ConnectionConfig, INLINE] = field(default_factory=ConnectionConfig)

    # The largest request; Pulsar's brokers send up to 5 MiB and a little.
    frame_bytes_max: Annotated[int, INTERNAL] = FRAME_BYTES_MAX_DEFAULT
    # Adds that wait for their sync; beyond it no socket is read. Two groups of a fast disk.
    journal_queue_bytes_max: Annotated[int, INTERNAL] = 32 * MIB
    # Under load, syncs begin this far apart (``decisions.group_pacing``), to be shared by more
    # entries. At 40,000 adds a second 3 ms mean 120 entries a sync, where 25 come by themselves.
    journal_group_interval_max_s: Annotated[float, INTERNAL] = 0.003
    # With little traffic: how much journal a restart has to replay at the most.
    checkpoint_interval_s: Annotated[float, INTERNAL] = 60.0
    # How long to wait after a checkpoint failed: a full disk is emptied by people, not soon.
    checkpoint_retry_s: Annotated[float, INTERNAL] = 5.0
    # Entries that are read with one disk read, and checked together.
    block_bytes: Annotated[int, INTERNAL] = 64 * 1024
    # Written to an entry log and synced in one go. The journal shares the disk: its syncs must not
    # wait behind a big one of a checkpoint.
    entry_log_batch_bytes: Annotated[int, INTERNAL] = MIB
    # Entry logs that are kept open to be read.
    entry_logs_open_max: Annotated[int, INTERNAL] = 64
    # Readers, of all connections, that wait until more is confirmed: about 1 KiB each, with the
    # request and its timer.
    long_polls_max: Annotated[int, INTERNAL] = 10_000
    # Ledgers of which the last-add-confirmed is remembered: those that are being read.
    confirmed_remembered_max: Annotated[int, INTERNAL] = 10_000
    # How often in a row a read looks up a block again that was moved meanwhile. Each time a whole
    # log was compacted during one read.
    block_moves_max: Annotated[int, INTERNAL] = 4
    # Ledgers whose state is kept in memory: about 300 bytes each.
    ledgers_cached_max: Annotated[int, INTERNAL] = 50_000
    # Reads of one connection that wait for the disk; beyond it its socket is not read.
    reads_queued_max: Annotated[int, INTERNAL] = 10_000
    # How long each step of a clean stop may take: the last sync, the last answers, the last
    # checkpoint. What is not done by then is replayed at the next start.
    close_timeout_s: Annotated[float, INTERNAL] = 1.5

    @property
    def advertised_host(self) -> str:
        """The address that clients connect to."""
        return self.advertised_address or self.bind_address

    @property
    def journals(self) -> tuple[Path, ...]:
        """The journal directories."""
        return self.journal_directories or (self.data_directory / "journal",)

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """The ledger directories."""
        return self.ledger_directories or (self.data_directory / "ledgers",)
