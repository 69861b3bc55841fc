"""Proves that a message's chunks stay together, in order, while consumers come, go or are full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import (
    MemoryLog,
    NotedSession,
    consumer_of,
    cursor_over,
)

from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch import shared_dispatcher
from geminga_broker.subscriptions.dispatch.shared_dispatcher import SharedDispatcher
from geminga_broker.subscriptions.distribution import chunk_receivers
from geminga_broker.subscriptions.distribution.chunk_receivers import (
    Chunk,
    ChunkReceivers,
    chunk_of,
)
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload


def chunk(uuid: str, number: int, count: int) -> bytes:
    metadata = api.MessageMetadata(
        producer_name="p",
        sequence_id=7,
        publish_time=1,
        uuid=uuid,
        chunk_id=number,
        num_chunks_from_msg=count,
        total_chunk_msg_size=count,
    )
    return encode_payload(metadata, b"x")


class ChunkedLog(MemoryLog):
    """Messages ``uuids``, each in so many chunks, one chunk of each in turn; then plain ones."""

    def __init__(self, uuids: str, chunks: int, plain: int = 0) -> None:
        super().__init__((1, len(uuids) * chunks + plain))
        self.uuids, self.chunks = uuids, chunks

    def part(self, entry_id: int) -> tuple[str, int] | None:
        """Which chunk of which message an entry is."""
        number, index = divmod(entry_id, len(self.uuids))
        return (self.uuids[index], number) if number < self.chunks else None

    def entry(self, entry_id: int) -> Entry:
        part = self.part(entry_id)
        if part is None:
            return super().entry(entry_id)
        return entry_id, chunk(*part, self.chunks), 0


def joined(dispatcher: SharedDispatcher, name: str, permits: int) -> tuple[Consumer, NotedSession]:
    session = NotedSession()
    consumer = consumer_of(session, name)
    consumer.permits = permits
    dispatcher.add(consumer)
    return consumer, session


def dispatcher_over(log: MemoryLog) -> SharedDispatcher:
    return SharedDispatcher(log, cursor_over(log.chain), [])  # type: ignore[arg-type]  # a stand-in


def parts_of(session: NotedSession, log: ChunkedLog) -> dict[str, list[int]]:
    """The chunks that a consumer was sent, by message, in the order of sending."""
    found: dict[str, list[int]] = {}
    for _, entry_id in session.positions():
        part = log.part(entry_id)
        if part is not None:
            found.setdefault(part[0], []).append(part[1])
    return found


def test_only_chunks_are_chunks() -> None:
    assert chunk_of(chunk("u", 0, 3)) == Chunk("u", is_last=False)
    assert chunk_of(chunk("u", 2, 3)) == Chunk("u", is_last=True)
    assert chunk_of(chunk("u", 0, 1)) is None
    assert chunk_of(MemoryLog((1, 1)).entry(0)[1]) is None
    assert chunk_of(b"garbage") is None
    metadata = api.MessageMetadata(producer_name="\xe8\x01", sequence_id=0, publish_time=1)
    assert chunk_of(encode_payload(metadata, b"")) is None


def test_messages_that_are_never_completed_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_receivers, "MESSAGES_MAX", 2)
    receivers = ChunkReceivers()
    one, other = consumer_of(NotedSession(), "one"), consumer_of(NotedSession(), "other")
    for uuid in "abc":
        assert receivers.receiver(Chunk(uuid, is_last=False), one) is one
    assert receivers.receiver(Chunk("c", is_last=False), other) is one
    assert receivers.receiver(Chunk("a", is_last=False), other) is other


async def test_all_chunks_of_a_message_go_to_one_consumer_and_plain_messages_to_all() -> None:
    log = ChunkedLog("abcdefgh", chunks=10, plain=100)
    dispatcher = dispatcher_over(log)
    sessions = [joined(dispatcher, name, 100)[1] for name in ("x", "y", "z")]
    dispatcher.dispatch()
    found = [parts_of(session, log) for session in sessions]
    assert all(each == list(range(10)) for parts in found for each in parts.values())
    assert sorted(uuid for parts in found for uuid in parts) == list("abcdefgh")
    assert sum(len(session.positions()) for session in sessions) == 180
    assert all(len(session.positions()) >= 20 for session in sessions)


@pytest.mark.parametrize("is_cold", [False, True])
async def test_chunks_wait_for_their_consumer_and_hold_up_no_other_consumer(
    *, is_cold: bool
) -> None:
    log = ChunkedLog("a", chunks=5, plain=20)
    log.is_cold = is_cold
    dispatcher = dispatcher_over(log)
    slow, its = joined(dispatcher, "slow", 2)
    dispatcher.dispatch()
    await log.settled()
    assert parts_of(its, log) == {"a": [0, 1]}
    _, others = joined(dispatcher, "fast", 100)
    dispatcher.dispatch()
    await log.settled()
    assert (parts_of(others, log), len(others.positions())) == ({}, 20)
    assert dispatcher.redelivery_backlog == 3
    assert dispatcher.wanted_from == Position(1, 2)
    for permits in (1, 2):
        slow.permits = permits
        dispatcher.dispatch()
        await log.settled()
    assert parts_of(its, log) == {"a": [0, 1, 2, 3, 4]}
    assert dispatcher.redelivery_backlog == 0


async def test_chunks_of_a_consumer_that_goes_are_all_sent_to_another() -> None:
    log = ChunkedLog("ab", chunks=4)
    dispatcher = dispatcher_over(log)
    going, _ = joined(dispatcher, "going", 3)
    dispatcher.dispatch()
    _, session = joined(dispatcher, "staying", 100)
    dispatcher.dispatch()
    dispatcher.remove(going)
    assert parts_of(session, log) == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}


async def test_chunks_that_were_given_back_come_again_together() -> None:
    log = ChunkedLog("a", chunks=4)
    dispatcher = dispatcher_over(log)
    first, session = joined(dispatcher, "first", 100)
    _, other = joined(dispatcher, "other", 100)
    dispatcher.dispatch()
    dispatcher.redeliver(first, None)
    both = parts_of(session, log).get("a", []), parts_of(other, log).get("a", [])
    assert sorted(map(len, both)) in ([0, 8], [4, 4])


async def test_what_waits_is_bounded_and_acknowledged_chunks_wait_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_dispatcher, "WAITING_MAX", 3)
    log = ChunkedLog("a", chunks=501, plain=600)
    dispatcher = dispatcher_over(log)
    joined(dispatcher, "slow", 1)
    dispatcher.dispatch()
    _, session = joined(dispatcher, "fast", 1000)
    dispatcher.dispatch()
    assert session.positions() == []
    waiting = dispatcher.redelivery_backlog
    assert 3 <= waiting < 600
    for entry_id in range(1, 501):
        dispatcher.cursor.acknowledged.acknowledge(1, entry_id)
        dispatcher.acknowledged_all([(1, entry_id)], [(1, entry_id)])
    assert dispatcher.redelivery_backlog == 0
    dispatcher.dispatch()
    assert len(session.positions()) == 600


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["flow", "go", "come", "give back"])),
        max_size=30,
    )
)
def test_no_consumer_is_sent_chunks_out_of_order(steps: list[tuple[int, str]]) -> None:
    """Nor is any lost: with room, everything arrives whole at some consumer."""
    log = ChunkedLog("abcdef", chunks=5, plain=10)
    dispatcher = dispatcher_over(log)
    present: dict[int, tuple[Consumer, NotedSession]] = {}
    gone: list[NotedSession] = []
    for which, step in steps:
        if step == "come" and which not in present:
            present[which] = joined(dispatcher, str(which), 3)
        elif which in present and step == "flow":
            present[which][0].permits += 4
        elif which in present and step == "go" and len(present) > 1:
            consumer, session = present.pop(which)
            gone.append(session)
            dispatcher.remove(consumer)
        elif which in present and step == "give back":
            dispatcher.redeliver(present[which][0], None)
        dispatcher.dispatch()
    if not present:
        return
    last, session = next(iter(present.values()))
    for consumer, _ in list(present.values())[1:]:
        dispatcher.remove(consumer)
    last.permits = 10_000
    dispatcher.redeliver(last, None)
    parts = parts_of(session, log)
    assert sorted(parts) == list("abcdef")
    for each in parts.values():
        assert each[-5:] == [0, 1, 2, 3, 4]
