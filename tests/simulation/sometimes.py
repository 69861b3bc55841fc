"""Counts what a story came to that happens rarely: seeds without it prove nothing of it."""

from __future__ import annotations

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
from geminga_broker.topics.producing.replicated import ReplicatorProducer
from geminga_broker.topics.producing.sequence_ids import Verdict
from geminga_broker.topics.producing.source_positions import SourcePositions
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
        count(SourcePositions, "is_under_way", _of_waiting)
        count(SourcePositions, "found_stored", _of_found)
        count(ReplicatorProducer, "fail", lambda *_: Rare.REFUSED)
        count(ReplicationChannel, "_resume", _of_resumed)
        count(Replicator, "_failed", _of_failed)
        count(Replicator, "_open", _of_opened)
        count(TopicReplication, "_remove", lambda *_: Rare.REMOVED)
        yield seen


def _of_verdict(verdict: Verdict, *_: object) -> Rare | None:
    return Rare.REPEAT if verdict is Verdict.STORED else None


def _of_waiting(waits: object, *_: object) -> Rare | None:
    return Rare.UNDER_WAY if waits else None


def _of_found(is_one: object, *_: object) -> Rare | None:
    return Rare.FOUND_AGAIN if is_one else None


def _of_resumed(_: object, channel: ReplicationChannel, __: object) -> Rare | None:
    return Rare.SENT_AGAIN if channel.pending_sends else None


def _of_failed(_: object, __: object, error: GemingaError) -> Rare:
    return Rare.STALLED if isinstance(error, ReplicationStalled) else Rare.REWOUND


def _of_opened(_: object, replicator: Replicator, __: object) -> Rare | None:
    return Rare.LOADED if replicator.cursor.backlog_entries else None
