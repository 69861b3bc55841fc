"""How ledgers are written and read: sizes, deadlines, limits, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from geminga_protocol.bookkeeper.codes import FRAME_BYTES_MAX_DEFAULT

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """The settings of one ``Ledgers``. Times in seconds."""

    # E, Qw, Qa of a ledger that ``create`` is given none for; Pulsar's own default is 2, 2, 2.
    ensemble_size: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    password: bytes = b""

    # An entry unconfirmed for so long fails its writer: a bookie that was killed has restarted and
    # replayed its journal by then.
    append_deadline_s: float = 60.0
    # A bookie that does not answer an entry or a read for so long counts as hung: its connection is
    # given up, and what it has not answered is sent again on a new one. Twice the 5 s of
    # BookKeeper's client, for disks that are shared.
    answer_timeout_s: float = 10.0
    # So long a read, a creation or a recovery is tried again while bookies are away.
    read_deadline_s: float = 30.0
    create_deadline_s: float = 30.0
    recovery_deadline_s: float = 60.0
    # A creation that needs more bookies than are registered at all, read-only ones included, waits
    # only so long for another one: enough for one that lost its session and registers again.
    registration_grace_s: float = 2.0
    # A change of metadata waits so long for a lost ZooKeeper connection.
    metadata_deadline_s: float = 30.0

    # For so long a bookie that could not be reached is asked last.
    down_memory_s: float = 5.0
    # For so long a bookie that failed or was slow is asked last, and replaces no other one.
    doubt_s: float = 30.0
    # With so many errors within the interval, a bookie gets no new ledgers for a while where there
    # are others (bookkeeperClientHealthCheckErrorThresholdPerInterval and its neighbours).
    quarantine_errors_max: int = 5
    quarantine_interval_s: float = 60.0
    quarantine_s: float = 1800.0
    # A bookie that has not been registered for so long is replaced in every ledger that has a
    # writer, even an idle one. Less than the 30 s after which auto-recovery takes an unclosed
    # ledger with a lost bookie from its writer (auto-recovery's open_ledger_rereplication_grace_s),
    # and more than a bookie takes to restart.
    absent_replace_s: float = 10.0
    # While the metadata of an ensemble change is written, nothing is confirmed, so that the new
    # bookie gets all entries of the new fragment. Where ZooKeeper takes longer than this, entries
    # are confirmed by the bookies that stay, and the new one lacks those.
    change_pause_s: float = 1.0

    # An entry that a bookie does not give within this time is requested from the next one as well;
    # 0 turns that off, as Pulsar's brokers do. BookKeeper's own default is this.
    speculative_read_s: float = 2.0
    # A reader that waits for more of an open ledger to be confirmed has its long poll answered by a
    # bookie after so long at the latest, then polls again.
    long_poll_s: float = 30.0
    # Where a bookie does not answer a long poll for so long, another one is polled as well; the
    # next after twice the time, up to ``long_poll_spread_limit_s`` (firstSpeculativeReadLACTimeout
    # and its neighbours).
    long_poll_spread_s: float = 1.5
    long_poll_spread_limit_s: float = 5.0
    # Bookies that cannot hold a long poll (the ledger's first entry has not come there, or they are
    # away) are asked again after so long.
    poll_interval_s: float = 0.1

    # A writer that has added nothing for this long sends the bookies its last-add-confirmed, so
    # that readers get the last entry before a next one comes; 0: never (explicitLacInterval, whose
    # default is that too).
    explicit_lac_interval_s: float = 0.0

    connect_timeout_s: float = 3.0
    # The first and the longest pause between attempts to reach a bookie (or ZooKeeper, inside one
    # operation).
    retry_first_s: float = 0.02
    retry_limit_s: float = 0.5

    # A writer refuses more unconfirmed bytes than this; its owner slows down long before.
    pending_bytes_max: int = 256 * MIB
    # Above this the kernel's and the transport's buffers are full and frames wait in our own list;
    # 64 KiB (asyncio's default) is less than what one loop turn writes at full speed.
    write_buffer_bytes_high: int = 1 * MIB
    # With so many bytes waiting for it, a bookie's connection is given up: it must not fill memory
    # while the others confirm. What it lacks is sent again over the next connection.
    unsent_bytes_max: int = 64 * MIB
    # Requests for neighbours that one reader may have in flight.
    reads_in_flight_max: int = 256
    # The read-ahead cache of all readers: mostly one entry for each active reader; where sizes
    # differ much, some MiB.
    read_ahead_bytes_max: int = 64 * MIB
    # Entries that recovery reads at once (recoveryReadBatchSize is 1 upstream).
    recovery_batch_entries: int = 64
    frame_bytes_max: int = FRAME_BYTES_MAX_DEFAULT
