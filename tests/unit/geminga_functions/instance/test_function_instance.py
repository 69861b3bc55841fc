"""Proves that code on the loop, which cannot wait when it uses state, has what others stored."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_functions.instance.brokers_in_memory import Brokers, Client
from tests.unit.geminga_functions.instance.instances_in_memory import (
    INPUTS,
    instance_of,
    state_of,
)

from geminga_functions.instance.context import Context
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.changes import Changes
from geminga_protocol.functions.functions_pb2 import ATLEAST_ONCE

# Longer than it takes until lanes are looked for again, and than readers of the test lag behind.
LATER_S = 100.0


@pytest.mark.parametrize("is_later", [False, True], ids=["stored before", "stored later"])
async def test_the_first_use_on_the_loop_has_what_others_stored(*, is_later: bool) -> None:
    brokers = Brokers()
    seen: list[object] = []

    async def look(_: str, context: Context) -> None:
        seen.append(context.get_state("greeting"))

    async with (
        state_of(Client(brokers), 1, is_alone=False) as others,
        state_of(client := Client(brokers), 0, is_alone=False) as state,
    ):
        if not is_later:
            await put(others)
        async with instance_of(client, state, look, ATLEAST_ONCE):
            if is_later:
                await put(others)
                await asyncio.sleep(LATER_S)
            brokers.topic(INPUTS[0]).append(b"input", None)
            await asyncio.sleep(LATER_S)
    assert seen == [b"hello"]


async def test_code_without_a_context_looks_for_no_state() -> None:
    brokers = Brokers()
    seen: list[str] = []
    asked: list[str] = []

    async def look(value: str) -> None:
        seen.append(value)

    client = Client(brokers)
    async with state_of(client) as state, instance_of(client, state, look, ATLEAST_ONCE):
        client.topics = asked.append  # type: ignore[method-assign, assignment]
        brokers.topic(INPUTS[0]).append(b"input", None)
        await asyncio.sleep(LATER_S)
    assert seen == ["input"]
    assert not asked


async def put(state: ChangelogState) -> None:
    changes = Changes(state)
    changes.put("greeting", b"hello")
    state.apply(changes)
    await state.commit()
