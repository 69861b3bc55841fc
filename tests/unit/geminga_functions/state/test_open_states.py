"""Proves that what REST reads is what was stored until then, that it is not read anew for each
question, and that nothing stays open which is not asked for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from tests.unit.geminga_functions.instance.brokers_in_memory import (
    Brokers,
    Client,
    EntryProducer,
    Topic,
)

import geminga
from geminga_functions.errors import StateDamaged, StateTooLarge
from geminga_functions.names import FunctionName
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.changes import Changes
from geminga_functions.state.lanes import lane_prefix
from geminga_functions.state.open_states import IDLE_CHECK_S, IDLE_S, OpenStates
from geminga_simulation.event_loop.clock import SimulatedClock

FUNCTION, OTHER = (FunctionName("public", "default", name) for name in "fg")
NAMESPACE = "public/functions"


@asynccontextmanager
async def instance(brokers: Brokers) -> AsyncGenerator[ChangelogState]:
    client = cast(geminga.Client, Client(brokers))
    async with ChangelogState(client, NAMESPACE, FUNCTION, "0") as state:
        yield state


def states_of(brokers: Brokers, directory: Path | None = None) -> OpenStates:
    client = cast(geminga.Client, Client(brokers))
    return OpenStates(client, NAMESPACE, directory, SimulatedClock())


async def put(state: ChangelogState, key: str, value: bytes) -> None:
    changes = Changes(state)
    changes.put(key, value)
    state.apply(changes)
    await state.commit()


async def test_a_request_sees_all_that_was_stored_and_reads_no_record_twice(tmp_path: Path) -> None:
    brokers = Brokers()
    async with instance(brokers) as writer, states_of(brokers, tmp_path / "copies") as states:
        for number in range(100):
            await put(writer, f"key {number}", b"1")
        async with states.use(FUNCTION) as state:
            assert state.get("key 99") == b"1"
            read = state.records_read
        await put(writer, "key 7", b"2")
        # Readers of the test hear of it a minute later, where they are not asked.
        async with states.use(FUNCTION) as again:
            assert again is state
            assert again.get("key 7") == b"2"
            assert again.records_read - read <= 2
            await put(again, "key 8", b"of REST")
        async with states_of(brokers) as others, others.use(FUNCTION) as other:
            assert other.get("key 8") == b"of REST"
            await put(other, "key 9", b"of another worker")
        async with states.use(FUNCTION) as state:
            assert state.get("key 9") == b"of another worker"
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - it takes no time


async def test_a_state_that_no_request_uses_is_closed() -> None:
    brokers = Brokers()
    async with states_of(brokers) as states:
        async with states.use(FUNCTION), states.use(OTHER):
            await asyncio.sleep(IDLE_S + 2 * IDLE_CHECK_S)
            assert states.open.keys() == {FUNCTION, OTHER}
        await asyncio.sleep(IDLE_S - IDLE_CHECK_S)
        async with states.use(OTHER):
            pass
        await asyncio.sleep(2 * IDLE_CHECK_S)
        assert states.open.keys() == {OTHER}
        await states.close_but({FUNCTION})
        assert not states.open


async def test_a_damaged_state_is_opened_anew() -> None:
    brokers = Brokers()
    async with instance(brokers) as writer, states_of(brokers) as states:
        await put(writer, "key", b"1")
        async with states.use(FUNCTION) as state:
            assert state.get("key") == b"1"
        lane: Topic = brokers.topic(lane_prefix(NAMESPACE, FUNCTION) + "0")
        lane.append(b"\xc1", "v:key")
        for _ in range(2):
            with pytest.raises(StateDamaged):
                async with states.use(FUNCTION):
                    pass
            assert not states.open
        lane.messages.pop()
        async with states.use(FUNCTION) as state:
            assert state.get("key") == b"1"


async def test_a_change_that_is_too_large_to_store_is_forgotten() -> None:
    brokers = Brokers()
    async with states_of(brokers) as states:
        for value in (b"1", b"x" * EntryProducer.message_bytes_max):
            with suppress(StateTooLarge):
                async with states.use(FUNCTION) as state:
                    await put(state, "key", value)
        async with states.use(FUNCTION) as state:
            assert state.get("key") == b"1"
            await put(state, "other", b"2")
        async with states.use(FUNCTION) as again:
            assert again is state
            assert (again.get("key"), again.get("other")) == (b"1", b"2")


async def test_a_change_whose_request_was_cancelled_is_not_in_the_state() -> None:
    brokers = Brokers()
    client = Client(brokers)
    states = OpenStates(cast(geminga.Client, client), NAMESPACE, None, SimulatedClock())
    async with states:
        async with states.use(FUNCTION) as state:
            await put(state, "key", b"1")
        client.may_go.clear()

        async def change() -> None:
            async with states.use(FUNCTION) as state:
                await put(state, "key", b"2")

        changing = asyncio.create_task(change())
        await asyncio.sleep(1.0)
        changing.cancel()
        await asyncio.wait([changing])
        client.may_go.set()
        async with states.use(FUNCTION) as state:
            assert state.get("key") == b"1"


async def test_requests_at_the_same_time_share_one_state(tmp_path: Path) -> None:
    brokers = Brokers()
    async with instance(brokers) as writer, states_of(brokers, tmp_path / "copies") as states:
        await put(writer, "key", b"1")

        async def ask() -> ChangelogState:
            async with states.use(FUNCTION) as state:
                await asyncio.sleep(0.01)
                return state

        assert len(set(await asyncio.gather(*[ask() for _ in range(5)]))) == 1
        assert states.open.keys() == {FUNCTION}
