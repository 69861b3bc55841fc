"""Proves that a state never goes on with less than its lanes have: when reading one fails it is
read again, and when it is damaged the state fails. A local copy saves reading what it has."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.unit.geminga_functions.instance.brokers_in_memory import (
    Brokers,
    Client,
    EntryProducer,
    Reader,
    Topic,
)

import geminga
from geminga_functions.errors import LocalCopyFailed, StateDamaged, StateInDoubt
from geminga_functions.names import FunctionName
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.changes import Changes
from geminga_functions.state.lanes import lane_of_partition, lane_prefix
from geminga_functions.state.local_copy import LocalCopy
from geminga_functions.state.records import LaneSummary, record_digest
from geminga_functions.state.table import MARK, REST_LANE, Commit

FUNCTION = FunctionName("public", "default", "f")
NAMESPACE = "public/functions"
PARTITION = "persistent://public/default/numbers"
# Longer than it takes until lanes are looked for again, and than readers of the test lag behind.
LATER_S = 100.0


class Failing(Client):
    """Its readers fail as ``plan`` says: by the name of a call, for what is left of it."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(brokers)
        self.plan: list[str] = []
        self.open_readers = 0

    def fails(self, call: str) -> None:
        if self.plan and self.plan[0] == call:
            self.plan.pop(0)
            raise geminga.ClientError(f"{call} failed")

    def reader(self, topic: str, start: geminga.MessageId, **options: object) -> Reader:
        del options
        return FailingReader(self, self.brokers.topic(topic), max(0, start.entry_id))


class FailingReader(Reader):
    def __init__(self, client: Failing, topic: Topic, place: int) -> None:
        super().__init__(topic, place)
        self._client = client
        client.open_readers += 1

    async def has_message_available(self) -> bool:
        self._client.fails("has_message_available")
        return await super().has_message_available()

    async def read(self) -> geminga.Message[bytes]:
        while self._place >= len(self._topic.messages):
            await self._topic.appended.wait()
        self._client.fails("read")
        self._place += 1
        return self._topic.messages[self._place - 1]

    async def close(self) -> None:
        self._client.open_readers -= 1


@asynccontextmanager
async def opened(
    client: Client, lane: str, directory: Path | None = None
) -> AsyncGenerator[ChangelogState]:
    known = cast(geminga.Client, client)
    state = ChangelogState(known, NAMESPACE, FUNCTION, lane, directory=directory)
    async with state:
        yield state


async def put(state: ChangelogState, key: str, value: bytes) -> None:
    changes = Changes(state)
    changes.put(key, value)
    changes.increment("sum", 1)
    state.apply(changes)
    await state.commit()


async def commit(state: ChangelogState, position: int) -> None:
    changes = Changes(state)
    changes.put("last", b"%d" % position)
    changes.increment("sum", 1)
    await state.commit_inputs(PARTITION, changes, Commit(position, []))


def topic_of(brokers: Brokers, lane: str) -> Topic:
    return brokers.topic(lane_prefix(NAMESPACE, FUNCTION) + lane)


async def test_a_lane_whose_follower_fails_is_read_again() -> None:
    brokers = Brokers()
    client = Failing(brokers)
    async with opened(Client(brokers), "0") as writer, opened(client, "1") as reader:
        await put(writer, "key", b"1")
        assert reader.get("key") is None
        await asyncio.sleep(LATER_S)
        assert reader.get("key") == b"1"
        client.plan = ["read", "has_message_available", "has_message_available"]
        await put(writer, "key", b"2")
        await asyncio.sleep(LATER_S)
        assert not client.plan
        assert reader.get("key") == b"2"
        await put(writer, "key", b"3")
        await asyncio.sleep(LATER_S)
        assert reader.get("key") == b"3"
        assert reader.sum_of("sum") == 3
        assert not reader.failure.done()
    assert client.open_readers == 0


@pytest.mark.parametrize("payload", [b"\xc1", b"\x93\x01\x02\x03"], ids=["damaged", "miscounted"])
async def test_a_lane_that_is_damaged_while_it_is_followed_ends_the_state(payload: bytes) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0") as writer, opened(Client(brokers), "1") as reader:
        await put(writer, "key", b"1")
        assert reader.get("key") is None
        await asyncio.sleep(LATER_S)
        topic_of(brokers, "0").append(payload, "v:key" if payload == b"\xc1" else "n:")
        await asyncio.sleep(LATER_S)
        assert isinstance(reader.failure.exception(), StateDamaged)
        # What stands on a state that is not whole is not stored.
        for work in (
            reader.commit(),
            put(reader, "key", b"2"),
            commit(reader, 1),
            reader.claim(PARTITION),
        ):
            with pytest.raises(StateDamaged):
                await work
    assert topic_of(brokers, "1").messages == []


async def test_a_claim_whose_reading_failed_is_whole_when_it_is_made_again() -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0") as old:
        await commit(old, 1)
        await commit(old, 2)
    for plan in (["has_message_available"], ["has_message_available"] * 2):
        client = Failing(brokers)
        async with opened(client, "1") as new:
            await commit_elsewhere(brokers)
            client.plan = plan
            with pytest.raises(geminga.ClientError):
                await new.claim(PARTITION)
            client.plan = []
            found = await new.claim(PARTITION)
            assert found is not None
            assert new.get("last") == b"%d" % found.position
            assert new.sum_of("sum") == found.position
            # It is its own by now, and nothing of it is read any more.
            await commit(new, found.position + 1)
            assert await new.claim(PARTITION) == Commit(found.position + 1, [])
        assert client.open_readers == 0


async def commit_elsewhere(brokers: Brokers) -> None:
    async with opened(Client(brokers), "2") as state:
        found = await state.claim(PARTITION)
        assert found is not None
        await commit(state, found.position + 1)


async def test_a_commit_waits_for_the_one_that_has_its_changes() -> None:
    brokers = Brokers()
    client = Client(brokers)
    async with opened(client, "0") as state:
        await put(state, "first", b"1")
        client.may_go.clear()
        first = asyncio.ensure_future(put(state, "a", b"1"))
        await asyncio.sleep(1.0)
        second = asyncio.ensure_future(state.commit())
        await asyncio.sleep(1.0)
        assert not first.done()
        assert not second.done()
        client.may_go.set()
        await asyncio.gather(first, second)
    async with opened(Client(brokers), "0") as later:
        assert later.get("a") == b"1"


async def test_a_local_copy_saves_reading_what_it_has(tmp_path: Path) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0", tmp_path / "0") as writer:
        async with opened(Client(brokers), REST_LANE) as rest:
            await put(rest, "of REST", b"1")
        for number in range(50):
            await put(writer, f"key {number}", b"%d" % number)
        async with opened(Client(brokers), "1", tmp_path / "1") as reader:
            assert reader.records_read == len(topic_of(brokers, "0").messages) + 2
            assert reader.sum_of("sum") == 51
        for number in range(50, 53):
            await put(writer, f"key {number}", b"%d" % number)
    # The last entry that they had, what came after it, the mark of the new writer; REST's lane.
    for lane, records in (("1", 3 * 4 + 2), ("0", 1 + 1 + 2)):
        async with opened(Client(brokers), lane, tmp_path / lane) as again:
            assert again.records_read <= records
            assert [again.get(f"key {n}") for n in range(53)] == [b"%d" % n for n in range(53)]
            assert again.get("of REST") == b"1"
            assert again.sum_of("sum") == 54
            await put(again, "more", b"1")
            if lane == "1":
                topic_of(brokers, "1").messages.clear()
                del brokers.topics[topic_of(brokers, "1").name]


async def test_a_copy_of_lanes_that_were_deleted_is_not_the_state(tmp_path: Path) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0") as writer:
        for number in range(5):
            await put(writer, f"key {number}", b"1")
        await commit(writer, 1)
    async with opened(Client(brokers), "1", tmp_path) as reader:
        assert reader.sum_of("sum") == 6
    topic_of(brokers, "0").messages.clear()
    del brokers.topics[topic_of(brokers, lane_of_partition(PARTITION)).name]
    async with opened(Client(brokers), "0") as writer:
        await put(writer, "key 3", b"2")
    async with opened(Client(brokers), "1", tmp_path) as reader:
        assert reader.get("key 3") == b"2"
        assert reader.get("key 1") is None
        assert reader.sum_of("sum") == 1
        assert await reader.claim(PARTITION) is None


async def test_a_copy_of_the_midst_of_a_first_entry_is_read_over(tmp_path: Path) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0") as writer:
        await put(writer, "key", b"1")
    for key in ("v:key", "v:of an older lane"):
        # A process was killed while it read the first entry of a lane.
        copy, record = LocalCopy(tmp_path), topic_of(brokers, "0").messages[1].data
        copy.write("0", {key: record}, LaneSummary(1, record_digest(key, record)))
        copy.close()
        async with opened(Client(brokers), "1", tmp_path) as reader:
            assert (reader.get("key"), reader.get("of an older lane")) == (b"1", None)
        shutil.rmtree(tmp_path)


async def test_a_state_that_is_closed_answers_nothing(tmp_path: Path) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0", tmp_path / "copy") as state:
        await put(state, "key", b"1")
    # Code that does not return has it still.
    with pytest.raises(LocalCopyFailed):
        state.get("key")
    with pytest.raises(LocalCopyFailed):
        state.sum_of("sum")


async def test_a_commit_that_was_given_up_ends_the_state() -> None:
    brokers = Brokers()
    client = Client(brokers)
    async with opened(client, "0") as state:
        await commit(state, 1)
        client.may_go.clear()
        committing = asyncio.create_task(commit(state, 2))
        await asyncio.sleep(1.0)
        committing.cancel()
        await asyncio.wait([committing])
        client.may_go.set()
        # It may be stored: the count of a later one would lack it, and the lane be damaged.
        with pytest.raises(StateInDoubt):
            await commit(state, 3)


@pytest.mark.parametrize("is_exact", [False, True])
async def test_a_change_is_newer_than_what_others_stored_though_no_code_reads_the_state(
    is_exact: bool,  # noqa: FBT001
) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0") as first, opened(Client(brokers), "1") as second:
        for number in range(3):
            await put(first, "last", b"first %d" % number)
        await asyncio.sleep(LATER_S)
        # The first change of this one shows that there is a state, and the next one counts.
        for number in (1, 2):
            await (commit(second, number) if is_exact else put(second, "last", b"second"))
            await asyncio.sleep(LATER_S)
    async with opened(Client(brokers), "2") as later:
        assert later.get("last") == (b"2" if is_exact else b"second")


async def test_a_lane_that_lost_its_beginning_is_refused_with_a_copy_too(tmp_path: Path) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), "0") as writer:
        await put(writer, "early", b"1")
        async with opened(Client(brokers), "1", tmp_path) as reader:
            assert reader.get("early") == b"1"
        await put(writer, "early", b"2")
        await put(writer, "late", b"1")
    # All that the copy had is there but for the change in the midst.
    topic = topic_of(brokers, "0")
    kept = [each for each in topic.messages if each.key != "v:early"]
    topic.messages[:] = kept
    with pytest.raises(StateDamaged):
        async with opened(Client(brokers), "1", tmp_path):
            pass


@pytest.mark.parametrize("lane", ["0", "1"], ids=["its own", "of another"])
@pytest.mark.parametrize("has_mark", [False, True])
async def test_a_lane_that_was_emptied_is_no_new_one_where_a_copy_knows_better(
    lane: str,
    has_mark: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    brokers = Brokers()
    async with opened(Client(brokers), lane, tmp_path / lane) as writer:
        await put(writer, "key", b"1")
        async with opened(Client(brokers), REST_LANE, tmp_path / "rest") as reader:
            assert reader.get("key") == b"1"
    topic = topic_of(brokers, lane)
    assert topic.messages[0].key == MARK
    del topic.messages[1 if has_mark else 0 :]
    client = Trimmed(brokers)
    # As often as it is tried: the copy is kept.
    for _ in range(3):
        with pytest.raises(StateDamaged, match="emptied"):
            async with opened(client, "0", tmp_path / (lane if lane == "0" else "rest")):
                pass


class Trimmed(Client):
    """Knows of topics that have nothing, too."""

    async def topics(self, _: str) -> list[str]:
        return list(self.brokers.topics)


async def test_partitions_that_moved_are_followed_though_a_writer_fails_to_close() -> None:
    brokers = Brokers()
    client = Unclosed(brokers)
    async with opened(client, "0") as old, opened(Client(brokers), "1") as new:
        await commit(old, 1)
        await new.claim(PARTITION)
        await commit(new, 2)
        with pytest.raises(geminga.ClientError, match="not closed"):
            await commit(old, 2)
        assert old.sum_of("sum") == 1
        await asyncio.sleep(LATER_S)
        assert old.sum_of("sum") == 2
        assert await old.claim(PARTITION) == Commit(2, [])


class Unclosed(Client):
    """The first of its producers that is closed fails to."""

    has_failed = False

    def entry_producer(self, topic: str, **options: object) -> EntryProducer:
        producer = super().entry_producer(topic, **options)

        async def close() -> None:
            if not self.has_failed:
                self.has_failed = True
                raise geminga.ClientError("not closed")

        producer.close = close  # type: ignore[method-assign]
        return producer
