"""Proves that instances share the state of their function, keep it, and that one which was replaced
changes nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

import geminga
from geminga_functions.errors import StateDamaged
from geminga_functions.names import FunctionName
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.changes import Changes
from geminga_functions.state.lanes import lane_of_partition, lanes_of
from geminga_functions.state.table import REST_LANE, Commit

pytestmark = pytest.mark.integration

TIMEOUT_S = 30.0
POLL_S = 0.02


@pytest.fixture
def open_state(client: geminga.Client) -> Callable[[str], ChangelogState]:
    function = FunctionName("public", "default", f"f{uuid4().hex[:8]}")
    return lambda lane: ChangelogState(client, "public/functions", function, lane)


def compact(standalone: StandaloneProcess, topic: str) -> None:
    path = f"/admin/v2/{topic.replace('://', '/')}/compaction"
    web = standalone.web_service_url
    assert rest(web, "PUT", path)[0] == 204
    eventually(lambda: rest(web, "GET", path)[1], lambda found: found["status"] == "SUCCESS")


def change(state: ChangelogState, method: str, *arguments: object) -> None:
    changes = Changes(state)
    getattr(changes, method)(*arguments)
    state.apply(changes)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - what a reader takes in wakes nothing
            await asyncio.sleep(POLL_S)


async def test_instances_share_values_and_counters(
    open_state: Callable[[str], ChangelogState],
) -> None:
    async with open_state("0") as first, open_state("1") as second:
        assert first.get("value") is None
        assert second.sum_of("count") is None
        change(first, "put", "value", b"of the first")
        change(first, "increment", "count", 5)
        change(second, "increment", "count", 7)
        await first.commit()
        await second.commit()
        await until(lambda: second.get("value") == b"of the first")
        await until(lambda: first.sum_of("count") == second.sum_of("count") == 12)


async def test_the_first_read_has_what_was_stored_long_before(
    open_state: Callable[[str], ChangelogState],
) -> None:
    async with open_state("0") as instance, open_state(REST_LANE) as rest:
        change(rest, "put", "value", b"of REST")
        await rest.commit()
        # As the user's code does, in a thread: what others stored since this was opened is there.
        assert await asyncio.to_thread(instance.get, "value") == b"of REST"


async def test_the_first_change_stands_on_what_was_stored_long_before(
    open_state: Callable[[str], ChangelogState],
) -> None:
    async with open_state("0") as first, open_state("1") as second:
        for number in range(3):
            change(first, "put", "last", b"%d" % number)
            await first.commit()
        # Of a function that reads nothing: a version that is too low would never count.
        await asyncio.to_thread(change, second, "put", "last", b"of the second")
        await second.commit()
        await until(lambda: first.get("last") == b"of the second")


async def test_state_outlives_its_instances(open_state: Callable[[str], ChangelogState]) -> None:
    async with open_state("0") as first, open_state(REST_LANE) as rest:
        for number in range(10):
            change(first, "put", f"key {number}", b"%d" % number)
            change(first, "increment", "count", 1)
            await first.commit()
        change(first, "delete", "key 3")
        await first.commit()
        change(rest, "put", "key 4", b"of REST")
        await rest.commit()
    async with open_state("5") as later:
        assert later.get("key 9") == b"9"
        assert later.get("key 3") is None
        assert later.get("key 4") == b"of REST"
        assert later.sum_of("count") == 10


async def test_what_was_not_committed_is_not_there(
    open_state: Callable[[str], ChangelogState],
) -> None:
    async with open_state("0") as first:
        change(first, "put", "value", b"1")
        await first.commit()
        change(first, "put", "value", b"2")
    async with open_state("0") as later:
        assert later.get("value") == b"1"


async def test_an_instance_that_was_replaced_changes_nothing_more(
    open_state: Callable[[str], ChangelogState],
) -> None:
    async with open_state("0") as old:
        change(old, "increment", "count", 1)
        await old.commit()
        async with open_state("0") as new:
            assert new.sum_of("count") == 1
            change(new, "increment", "count", 1)
            await new.commit()
            change(old, "increment", "count", 100)
            with pytest.raises(geminga.ProducerFenced):
                await old.commit()
    async with open_state("0") as later:
        assert later.sum_of("count") == 2


async def test_a_compacted_lane_is_read_as_its_live_keys_alone(
    standalone: StandaloneProcess, client: geminga.Client
) -> None:
    function = FunctionName("public", "default", f"f{uuid4().hex[:8]}")
    partition = "persistent://public/default/numbers"
    async with ChangelogState(client, "public/functions", function, "0") as state:
        for number in range(100):
            changes = Changes(state)
            changes.put(f"key {number % 4}", b"%d" % number)
            changes.increment("count", 1)
            await state.commit_inputs(partition, changes, Commit(number, []))
    lane = (await lanes_of(client, "public/functions", function))[lane_of_partition(partition)]
    await asyncio.to_thread(compact, standalone, lane)
    async with client.reader(lane, geminga.EARLIEST, read_compacted=True) as reader:
        keys = []
        while await reader.has_message_available():
            keys += [message.key or "" for message in await reader.read_many(1000)]
    assert sorted(keys) == [
        "c:count",
        "m:",
        "n:",
        "p:",
        *(f"v:key {number}" for number in range(4)),
    ]
    async with ChangelogState(client, "public/functions", function, "1") as later:
        assert [later.get(f"key {number}") for number in range(4)] == [b"96", b"97", b"98", b"99"]
        assert later.sum_of("count") == 100
        assert await later.claim(partition) == Commit(99, [])


async def test_nothing_goes_on_with_a_lane_that_was_trimmed(
    standalone: StandaloneProcess, client: geminga.Client
) -> None:
    function = FunctionName("public", "default", f"f{uuid4().hex[:8]}")
    async with ChangelogState(client, "public/functions", function, "0") as state:
        change(state, "put", "early", b"1")
        await state.commit()
        (topic,) = (await lanes_of(client, "public/functions", function)).values()
        path = f"/admin/v2/{topic.replace('://', '/')}/truncate"
        truncated = await asyncio.to_thread(rest, standalone.web_service_url, "DELETE", path)
        assert truncated[0] == 204
        change(state, "put", "late", b"2")
        await state.commit()
    for lane in ("0", "1"):
        with pytest.raises(StateDamaged, match=r"'0'.* has 1 of 2 keys: the topic was trimmed"):
            async with ChangelogState(client, "public/functions", function, lane):
                pass


async def test_a_local_copy_saves_reading_lanes_compacted_or_not(
    standalone: StandaloneProcess, client: geminga.Client, tmp_path: Path
) -> None:
    function = FunctionName("public", "default", f"f{uuid4().hex[:8]}")
    namespace, partition = "public/functions", "persistent://public/default/numbers"
    keys = 3000
    async with ChangelogState(client, namespace, function, "0") as state:
        for first in range(0, keys, 500):
            for number in range(first, first + 500):
                change(state, "put", f"key {number}", b"%d" % number)
            await state.commit()
        await state.commit_inputs(partition, changes_of(state, 1), Commit(1, []))
        async with ChangelogState(client, namespace, function, "1", directory=tmp_path) as other:
            assert other.records_read > keys
        # The second entry of a lane that the copy had all of, and the first one of a new lane.
        await state.commit_inputs(partition, changes_of(state, 2), Commit(2, []))
        change(state, "put", "key 7", b"new")
        await state.commit()
    lanes = await lanes_of(client, namespace, function)
    assert lanes.keys() == {"0", lane_of_partition(partition)}
    for is_compacted in (False, True):
        if is_compacted:
            for topic in lanes.values():
                await asyncio.to_thread(compact, standalone, topic)
        async with ChangelogState(client, namespace, function, "1", directory=tmp_path) as other:
            assert other.records_read < 600  # an entry of 500 keys, and what came since
            assert other.get("key 7") == b"new"
            assert other.get(f"key {keys - 1}") == b"%d" % (keys - 1)
            assert other.sum_of("sum") == 3
            assert await other.claim(partition) == Commit(2, [])
    for topic in lanes.values():
        path = f"/admin/v2/{topic.replace('://', '/')}?force=true"
        assert (await asyncio.to_thread(rest, standalone.web_service_url, "DELETE", path))[0] == 204
    async with ChangelogState(client, namespace, function, "0") as state:
        change(state, "put", "key 7", b"another")
        await state.commit()
    async with ChangelogState(client, namespace, function, "1", directory=tmp_path) as other:
        assert [other.get(f"key {n}") for n in (6, 7)] == [None, b"another"]
        assert other.sum_of("sum") is None


def changes_of(state: ChangelogState, amount: int) -> Changes:
    changes = Changes(state)
    changes.increment("sum", amount)
    return changes
