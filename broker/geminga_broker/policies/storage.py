"""Replication of a topic's ledgers, how often its cursors are stored, and retention. Pure."""

from __future__ import annotations

from dataclasses import replace

from geminga_broker.managed_ledger.config import ManagedLedgerConfig
from geminga_broker.managed_ledger.ledger_chain.retention import FOR_EVER, Retention
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import INT_MAX, LONG_MAX, Levels, nearest
from geminga_protocol.records.cluster.namespaces import PersistencePolicies, RetentionPolicies

# The largest ensemble that a policy may ask for (upstream's, a constant there, too).
BOOKIES_MAX = 5
UNLIMITED = -1
MINUTE_MS = 60_000
MIB = 1024 * 1024
# A cursor is stored at least so often, whatever its policy says: a crash forgets the
# acknowledgements since then.
CURSOR_FLUSH_DELAY_S_MAX = 60.0


def managed_ledger_config(config: ManagedLedgerConfig, levels: Levels) -> ManagedLedgerConfig:
    """How the log of a topic is stored."""
    persistence = nearest(
        _usable(levels.topic.persistence), _usable(levels.namespace.persistence), None
    )
    if persistence is None:
        return config
    # At most so many writes of a cursor a second; 0: any number. The delay concerns writes that no
    # client waits for. A rate of r is a delay of 1/r after a change. Receipts are not delayed by
    # it: an acknowledgement that a client waits for is written at once (``Cursor.changed``).
    rate_max, flush_delay_s = persistence.mark_delete_rate_max, config.cursor_flush_delay_s
    if rate_max > 0:
        flush_delay_s = max(flush_delay_s, min(1 / rate_max, CURSOR_FLUSH_DELAY_S_MAX))
    # Ledgers that are open keep their quorums; the next one gets these.
    return replace(
        config,
        ensemble_size=persistence.ensemble,
        write_quorum=persistence.write_quorum,
        ack_quorum=persistence.ack_quorum,
        cursor_flush_delay_s=flush_delay_s,
    )


def _usable(policies: PersistencePolicies | None) -> PersistencePolicies | None:
    """None for impossible quorums, as other writers of the record may have left them: no ledger
    could be created with them."""
    if policies is None:
        return None
    try:
        check_persistence(policies)
    except InvalidPolicy:
        return None
    return policies


def retention(config: ManagedLedgerConfig, levels: Levels) -> Retention:
    """How much of a topic is kept after all subscriptions have acknowledged it."""
    policies = nearest(levels.topic.retention, levels.namespace.retention, None)
    if policies is None:
        return Retention(config.retention_time_ms, config.retention_bytes)
    minutes, size_mib = policies.time_minutes, policies.size_mib
    # A policy is in minutes or MiB, -1 without a limit; ledgers compare milliseconds and bytes.
    # With 0 minutes and 0 MiB nothing is retained: the log is trimmed as soon as all cursors have
    # passed.
    return Retention(
        time_ms=FOR_EVER if minutes < 0 else minutes * MINUTE_MS,
        size_bytes=FOR_EVER if size_mib < 0 else size_mib * MIB,
    )


def check_persistence(policies: PersistencePolicies) -> None:
    """Raise ``InvalidPolicy`` for impossible quorums."""
    sizes = {
        "Ensemble": policies.ensemble,
        "WriteQuorum": policies.write_quorum,
        "AckQuorum": policies.ack_quorum,
    }
    # In upstream's words and order, as clients show them.
    for name, size in sizes.items():
        if not 0 < size <= BOOKIES_MAX:
            raise InvalidPolicy(f"Bookkeeper-{name} must be <= {BOOKIES_MAX} and > 0.")
    if not policies.ensemble >= policies.write_quorum >= policies.ack_quorum:
        raise InvalidPolicy(
            f"Bookkeeper Ensemble ({policies.ensemble}) >= WriteQuorum ({policies.write_quorum}) "
            f">= AckQuorum ({policies.ack_quorum})"
        )


def check_retention(policies: RetentionPolicies) -> None:
    """Raise ``InvalidPolicy`` for impossible limits, and such as contradict each other."""
    time, size = policies.time_minutes, policies.size_mib
    if time < UNLIMITED:
        raise InvalidPolicy("Invalid retention policy: time limit must be >= -1")
    if size < UNLIMITED:
        raise InvalidPolicy("Invalid retention policy: size limit must be >= -1")
    if time > INT_MAX or size > LONG_MAX:
        raise InvalidPolicy("Invalid retention policy: a limit is too large")
    # 0 keeps nothing, whatever the other limit would keep: that is seldom what was meant.
    if (time == 0) != (size == 0):
        raise InvalidPolicy(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when "
            "one of the limits has a non-zero value. Use the value of -1 instead of 0 to ignore a "
            "specific limit. To disable retention both limits must be set to 0."
        )
