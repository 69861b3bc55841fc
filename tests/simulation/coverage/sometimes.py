"""What a story comes to that happens rarely: seeds without it prove nothing of it.

Most that is rare is logged: a story's ``RARE_EVENTS`` are such words. What replication comes to is
told by its methods instead (``Rare``), since not all of it is worth an operator's attention.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from functools import wraps
from typing import Any

import pytest

from geminga_broker.replication.channel import ReplicationChannel
from geminga_broker.replication.errors import ReplicationStalled
from geminga_broker.replication.replicator import Replicator
from geminga_broker.topics.decisions.sequence_ids import Verdict
from geminga_broker.topics.decisions.source_positions import SourcePositions
from geminga_broker.topics.producers.replicator_producer import ReplicatorProducer
from geminga_broker.topics.topic_replication import TopicReplication
from geminga_runtime.errors import GemingaError


class Rare(Enum):
    """What replication comes to only where something has gone wrong, or was changed."""

    REPEAT = "an entry was stored already"
    UNDER_WAY = "a replicator came back while what it had sent was being stored"
    SENT_AGAIN = "entries without a receipt were sent on another connection"
    REWOUND = "a replicator began again where its cursor stands"
    REFUSED = "a broker refused an entry"
    STALLED = "a cluster confirmed nothing for too long"
    FOUND_AGAIN = "a topic learnt from its entries what had been replicated"
    LOADED = "a topic was loaded with a backlog"
    REMOVED = "a cluster was taken out"


# What a hundred seeds of a story come to, each of it more than once: (module, event).
# ``test_sometimes.py`` tells fewer seeds of those that take long: what is theirs is less rare.
RARE_EVENTS: dict[str, tuple[tuple[str, str], ...]] = {
    "ledgers": (
        ("journal", "journal failed: the bookie takes no more adds until it is started again"),
        ("checkpoint", "checkpoint failed: no adds are taken until one succeeds"),
        # Three in 200 seeds come to a group of the journal that is cut off: that of corruption,
        # which comes to it more often, stands for this story.
        ("bookie", "bookie is read-only"),
        ("bookie", "journal replayed"),
        ("pipeline", "bookie refused an entry"),
        ("pipeline", "ledger writer failed"),
        ("ensemble_change", "bookies replaced"),
        ("fencing", "ledger fenced"),
        ("ids", "id node left"),
        ("last_entry_poll", "bookie not asked"),
        ("last_entry_poll", "bookie refused to tell its last entry"),
        ("long_poll", "bookie cannot tell"),
        ("reads", "entry cannot be read"),
        ("reader", "copies missing"),
        ("registry", "bookie list not refreshed"),
    ),
    "corruption": (
        ("copies", "damaged entry"),
        ("entry_log", "damaged block"),
        ("range_read", "damaged entry"),
        ("reads", "entry cannot be read"),
        ("rebuild", "the index is missing: it is rebuilt from the entry logs"),
        ("replay", "journal ends in the middle of a group, which was not acknowledged: cut off"),
        ("worker", "ledger put off"),
    ),
    "bookies": (
        ("batch_reads", "entry cannot be read"),
        (
            "checkpoint",
            "no room for a checkpoint: no adds are taken until there is; free some of the disk",
        ),
        ("journal", "journal closes with adds that were not written"),
        ("v3", "disks cannot be measured"),
    ),
    "autorecovery": (
        ("auditor", "auditor tries again later"),
        ("entry_lists", "bookie does not list its entries"),
        ("ledger_deletion", "ledgers deleted"),
        ("repair", "fragment repaired"),
        ("worker", "worker tries again later"),
    ),
    "garbage": (
        ("checkpoint", "checkpoint failed: no adds are taken until one succeeds"),
        ("collector", "garbage not collected this time"),
        ("compaction", "entry log removed"),
        ("pipeline", "ledger writer failed"),
        ("registration", "bookie not registered yet"),
    ),
    "cluster": (
        ("brokers", "broker not registered"),
        ("connection", "broker given up"),
        ("cursor", "cursor left open"),
        ("cursor", "cursor not saved"),
        ("directory", "topic not loaded"),
        ("policy_follower", "policies not read"),
        ("managed_ledger", "log left open"),
        ("managed_ledger", "no ledger to write"),
        ("owned_bundles", "bundle lost"),
        ("ownership", "bundles handed on"),
        ("repair", "unclosed ledger misses bookies, taken over"),
    ),
    "features": (
        ("backlog", "backlog quota exceeded"),
        ("cursor", "cursor left open"),
        ("cursor", "cursor not saved"),
        ("directory", "topic not loaded"),
        ("managed_ledger", "ledger failed"),
        ("managed_ledger", "log left open"),
        ("managed_ledger", "no ledger to write"),
        ("owned_bundles", "bundle lost"),
        ("owned_bundles", "bundle split"),
        ("owned_bundles", "bundle unloaded"),
        ("ownership", "bundle not handed on"),
        ("ownership", "bundles handed on"),
        ("producers", "publish refused"),
    ),
    "messaging": (
        ("cursor", "cursor lost"),
        ("managed_ledger", "log fenced"),
        ("owned_bundles", "bundle not taken back"),
        ("reads", "entry cannot be read"),
        ("trimmer", "not trimmed"),
    ),
    "takeover": (
        ("cursor", "cursor lost"),
        ("links", "bookie does not answer, reconnecting"),
        ("managed_ledger", "log fenced"),
        ("owned_bundles", "bundle unloaded"),
        ("ownership", "bundle not handed on"),
        ("cursor_reader", "read failed"),
        ("cursor", "cursor not deleted"),
        ("cursor", "cursor not saved"),
        ("directory", "topic not loaded"),
    ),
    "many brokers": (
        ("brokers", "broker not registered"),
        ("directory", "topic not loaded"),
        ("policy_follower", "policies not read"),
        ("managed_ledger", "log fenced"),
        ("managed_ledger", "log left open"),
        ("managed_ledger", "no ledger to write"),
        ("owned_bundles", "bundle lost"),
        ("owned_bundles", "bundle not taken back"),
        ("owned_bundles", "bundle split"),
        ("owned_bundles", "bundle unloaded"),
        ("ownership", "bundle not handed on"),
        ("ownership", "bundles handed on"),
    ),
    "compaction": (
        ("topic_compactor", "not compacted"),
        ("cursor", "cursor not saved"),
        ("directory", "topic not loaded"),
        ("managed_ledger", "no ledger to write"),
        ("reads", "entry cannot be read"),
    ),
    "delayed": (
        ("cursor", "cursor not saved"),
        ("cursor_reader", "read failed"),
        ("directory", "topic not loaded"),
        ("policy_follower", "policies not read"),
        ("messages", "index of delayed messages waits"),
        ("reads", "entry cannot be read"),
        ("trimmer", "not trimmed"),
    ),
    "reading": (
        ("cursor_reader", "read failed"),
        ("directory", "topic not loaded"),
        ("owned_bundles", "bundle unloaded"),
        ("ownership", "bundle not handed on"),
    ),
    "schemas": (("storage", "schema version lost"),),
    "tailing": (
        ("bookie", "bookie is read-only"),
        ("ensemble_change", "bookies replaced"),
        ("explicit_lac", "explicit lac not sent"),
        ("ledger_view", "metadata not watched"),
        ("long_poll", "bookie cannot tell"),
        ("long_poll", "bookie refused to tell what is confirmed"),
        ("reader", "copies missing"),
        ("v3_reads", "entry cannot be read"),
    ),
    "replication": (
        *(("replication", each.value) for each in Rare),
        ("remote_clusters", "remote cluster not read"),
        ("replicated_topics", "replicated topic not loaded"),
        ("replicator", "replication interrupted"),
    ),
    "functions workers": (
        ("heartbeats", "heartbeat is not stored"),
        ("instances", "lease ended: instances are killed"),
        ("worker", "worker does not say what runs there"),
        ("leadership", "worker is gone"),
        ("ownership", "bundle not handed on"),
    ),
    "proxy": (
        ("channel", "not attached yet"),
        ("connection", "connection closed"),
        ("fencing", "ledger fenced"),
    ),
    "client storms": (
        ("channel", "detached"),
        ("channel", "not attached yet"),
        ("fencing", "ledger fenced"),
    ),
}


class EventCounter(logging.Handler):
    """Counts what processes log, by the module and the event, and what is ``Rare``, while it is
    entered."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen = Counter[tuple[str, str]]()

    def emit(self, record: logging.LogRecord) -> None:
        self.seen[record.name.rpartition(".")[2], str(record.msg)] += 1

    def __enter__(self) -> Counter[tuple[str, str]]:
        root = logging.getLogger()
        self._level_before = root.level
        root.setLevel(logging.INFO)
        root.addHandler(self)
        self._counting = counting()
        self._rare = self._counting.__enter__()
        return self.seen

    def __exit__(self, *_: object) -> None:
        self._counting.__exit__(None, None, None)
        self.seen.update({("replication", rare.value): count for rare, count in self._rare.items()})
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level_before)


@contextmanager
def counting() -> Generator[Counter[Rare]]:
    """Count meanwhile, of all topics of all clusters."""
    seen = Counter[Rare]()
    with pytest.MonkeyPatch.context() as patch:

        def count(owner: type, method: str, what: Callable[..., Rare | None]) -> None:
            """``what`` is told what the method is, and then gives back."""
            honest = getattr(owner, method)

            @wraps(honest)
            def counted(*told: Any) -> Any:
                result = honest(*told)
                rare = what(result, *told)
                if rare is not None:
                    seen[rare] += 1
                return result

            patch.setattr(owner, method, counted)

        count(SourcePositions, "judge", _of_verdict)
        count(SourcePositions, "has_pending", _of_waiting)
        count(SourcePositions, "found_stored", _of_found)
        count(ReplicatorProducer, "fail", lambda *_: Rare.REFUSED)
        count(ReplicationChannel, "_resume", _of_resumed)
        count(Replicator, "_failed", _of_failed)
        count(Replicator, "_open_parts", _of_opened)
        count(TopicReplication, "_remove", lambda *_: Rare.REMOVED)
        yield seen


def _of_verdict(verdict: Verdict, *_: object) -> Rare | None:
    return Rare.REPEAT if verdict is Verdict.STORED else None


def _of_waiting(waits: object, *_: object) -> Rare | None:
    return Rare.UNDER_WAY if waits else None


def _of_found(is_one: object, *_: object) -> Rare | None:
    return Rare.FOUND_AGAIN if is_one else None


def _of_resumed(_: object, channel: ReplicationChannel, __: object) -> Rare | None:
    return Rare.SENT_AGAIN if channel.pending.sends else None


def _of_failed(_: object, __: object, error: GemingaError) -> Rare:
    return Rare.STALLED if isinstance(error, ReplicationStalled) else Rare.REWOUND


def _of_opened(_: object, replicator: Replicator) -> Rare | None:
    return Rare.LOADED if replicator.cursor.backlog_entries else None
