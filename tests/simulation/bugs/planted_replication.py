"""Bugs planted in replication, one promise broken by each, as ``planted`` has them of all else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import pytest

from geminga_broker.errors import BrokerError
from geminga_broker.managed_ledger.cursors.cursor import Cursor
from geminga_broker.managed_ledger.positions import Position
from geminga_broker.managed_ledger.writing.append_request import (
    AppendRequest,
    one_by_one,
    payload_of,
)
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.replicated_topics import ReplicatedTopics
from geminga_broker.replication.channel import ReplicationChannel
from geminga_broker.replication.messages import Verdict as ToSend
from geminga_broker.replication.messages import judge as honest
from geminga_broker.replication.remote_schemas import RemoteSchemas, Store
from geminga_broker.replication.replicator import Replicator
from geminga_broker.topics.decisions.sequence_ids import Verdict
from geminga_broker.topics.decisions.source_positions import SourcePositions
from geminga_broker.topics.producers import publish_gate
from geminga_broker.topics.producers.producer import Producer, Step
from geminga_broker.topics.producers.replicator_producer import ReplicatorProducer
from geminga_broker.topics.topic_replication import TopicReplication
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import MessageMetadata
from geminga_protocol.pulsar.messages.replication import SourcePosition
from geminga_protocol.pulsar.topics.topic_names import NamespaceName
from geminga_runtime.errors import GemingaError


def take_all_for_new(patch: pytest.MonkeyPatch) -> None:
    """A cluster stores whatever another one sends."""

    def all_new(_: SourcePositions, name: str, positions: Sequence[SourcePosition]) -> bool:
        del name, positions
        return True

    patch.setattr(SourcePositions, "all_new", all_new)


def take_the_last_for_new(patch: pytest.MonkeyPatch) -> None:
    """The very entry that was stored last counts as new when it comes again."""
    honest = SourcePositions.judge

    def judge(positions: SourcePositions, name: str, position: SourcePosition) -> Verdict:
        is_last = position == positions._stored.get(name)
        return Verdict.NEW if is_last else honest(positions, name, position)

    patch.setattr(SourcePositions, "judge", judge)


def forget_what_is_under_way(patch: pytest.MonkeyPatch) -> None:
    """What is being stored counts as new until it is."""

    def taken(_: SourcePositions, name: str, position: SourcePosition) -> None:
        del name, position

    patch.setattr(SourcePositions, "taken", taken)


def believe_snapshots_alone(patch: pytest.MonkeyPatch) -> None:
    """A topic that is loaded does not find positions in its entries (upstream's #25861)."""

    def found_stored(_: SourcePositions, metadata: MessageMetadata, cluster: str) -> bool:
        del cluster
        return bool(metadata.replicated_from)

    patch.setattr(SourcePositions, "found_stored", found_stored)


def store_behind_the_refused(patch: pytest.MonkeyPatch) -> None:
    """Of a run with an entry that is refused the others are stored (upstream's #26113)."""

    def take_allowed(
        following: Step,
        why_refused: Callable[[bytes], BrokerError | None],
        producer: Producer,
        requests: Sequence[AppendRequest],
    ) -> None:
        for request in one_by_one(requests):
            refusal = why_refused(payload_of(request))
            if refusal is None:
                following(producer, [request])
            else:
                producer.fail(request, refusal)

    patch.setattr(publish_gate, "_take_allowed", take_allowed)


def keep_who_was_refused(patch: pytest.MonkeyPatch) -> None:
    """A replicator may go on sending behind an entry that was refused, until it rewinds."""
    patch.setattr(ReplicatorProducer, "fail", Producer.fail)


def send_in_haste(patch: pytest.MonkeyPatch) -> None:
    """No bug: a replicator sends on behind an entry that was refused before, as Apache Pulsar's
    does, and the receiving broker has to bear it."""

    def may_have_pending(replicator: Replicator) -> int:
        return replicator._services.config.pending_messages_max

    patch.setattr(Replicator, "_may_have_pending", may_have_pending)


def pass_over_the_refused(patch: pytest.MonkeyPatch) -> None:
    """A replicator takes a refusal for a receipt."""

    def send_error(channel: ReplicationChannel, error: api.CommandSendError) -> None:
        del error
        for each in list(channel.pending.sends)[:1]:
            channel._settle(each.sequence_id, None)

    patch.setattr(ReplicationChannel, "send_error", send_error)


def move_cursors_early(patch: pytest.MonkeyPatch) -> None:
    """A replicator's cursor passes what was sent, receipt or not."""
    honest = Replicator._take

    def take(
        replicator: Replicator, channel: ReplicationChannel, position: Position, payload: bytes
    ) -> bytes | None:
        version = honest(replicator, channel, position, payload)
        replicator._done(replicator._position)
        return version

    patch.setattr(Replicator, "_take", take)


def pass_what_waits(patch: pytest.MonkeyPatch) -> None:
    """An entry that is not sent takes the cursor past those before it that have no receipt."""

    def passed(replicator: Replicator, position: Position) -> None:
        replicator._position = position
        replicator._done(position)

    patch.setattr(Replicator, "_passed", passed)


def go_on_behind_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    """A replicator that begins again does so behind all that it had sent."""
    take, failed = Replicator._take, Replicator._failed
    sent: WeakKeyDictionary[Replicator, Position] = WeakKeyDictionary()

    def take_and_note(
        replicator: Replicator, channel: ReplicationChannel, position: Position, payload: bytes
    ) -> bytes | None:
        version = take(replicator, channel, position, payload)
        sent[replicator] = replicator._position
        return version

    def fail_and_go_on(replicator: Replicator, error: GemingaError) -> None:
        failed(replicator, error)
        if replicator in sent:
            replicator._done(sent[replicator])

    patch.setattr(Replicator, "_take", take_and_note)
    patch.setattr(Replicator, "_failed", fail_and_go_on)


def forget_what_has_no_receipt(patch: pytest.MonkeyPatch) -> None:
    """A replicator that comes back over another connection takes for stored what it had sent."""
    honest = ReplicationChannel._resume

    def resume(channel: ReplicationChannel, connection: object) -> None:
        for each in list(channel.pending.sends):
            channel._settle(each.sequence_id, None)
        honest(channel, connection)  # type: ignore[arg-type]

    patch.setattr(ReplicationChannel, "_resume", resume)


def trim_what_is_not_replicated(patch: pytest.MonkeyPatch) -> None:
    """Replicators' cursors do not hold a log."""

    def cursors(_: TopicReplication) -> list[Cursor]:
        return []

    patch.setattr(TopicReplication, "cursors", cursors)


def keep_the_versions_of_schemas(patch: pytest.MonkeyPatch) -> None:
    """A replicator tells other clusters the versions that schemas have in its own."""

    honest_learn = RemoteSchemas.learn

    async def learn(schemas: RemoteSchemas, version: bytes, store: Store) -> None:
        await honest_learn(schemas, version, store)
        schemas.versions[version] = version

    patch.setattr(RemoteSchemas, "learn", learn)


def send_to_all(patch: pytest.MonkeyPatch) -> None:
    """A replicator does not look for which clusters a message is."""

    def judge(metadata: MessageMetadata, remote: str, *, expires_before_ms: int) -> ToSend:
        verdict = honest(metadata, remote, expires_before_ms=expires_before_ms)
        return ToSend.SEND if verdict is ToSend.NOT_SELECTED else verdict

    patch.setattr("geminga_broker.replication.replicator.judge", judge)


def wait_for_clients(patch: pytest.MonkeyPatch) -> None:
    """Brokers load topics when clients ask for them, and not because they are replicated."""

    async def is_loaded(_: ReplicatedTopics, bundle: Bundle) -> bool:
        del bundle
        return True

    async def is_served(_: ReplicatedTopics, namespace: NamespaceName) -> None:
        del namespace

    patch.setattr(ReplicatedTopics, "_load", is_loaded)
    patch.setattr(ReplicatedTopics, "_serve_namespace", is_served)
