"""A bookie's node is there while it lives, in the right place, whatever its session does."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.geminga_bookie.fakes import INSTANT_S, bookie_session, end_session

from geminga_bookie.registration import RETRY_S, Registration
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH, READ_ONLY_PATH, BookieInfo
from geminga_runtime.coordination import ConnectionLost
from geminga_runtime.service import RESTART_S
from geminga_simulation.zookeeper.interception import InstantSession

ADDRESS = BookieInfo.of_address("10.0.0.1", 3181)
WRITABLE, READ_ONLY = f"{AVAILABLE_PATH}/bookie-1", f"{READ_ONLY_PATH}/bookie-1"


class Mode:
    """Whether the bookie is read-only."""

    is_read_only = False


def make_registration(coordination: InstantSession, mode: Mode | None = None) -> Registration:
    mode = mode or Mode()
    return Registration(coordination, "bookie-1", ADDRESS, is_read_only=lambda: mode.is_read_only)


async def settle() -> None:
    await asyncio.sleep(INSTANT_S)


async def test_the_node_holds_the_address_and_goes_with_the_bookie() -> None:
    coordination = bookie_session()
    async with make_registration(coordination):
        value, stat = coordination.zookeeper.tree.get(WRITABLE)
        assert BookieInfo.decode(value, "bookie-1") == ADDRESS
        assert stat.ephemeral_owner == coordination.session_id
    assert coordination.zookeeper.tree.exists(WRITABLE) is None


async def test_after_an_unforeseen_error_the_bookie_registers_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordination = bookie_session()
    async with make_registration(coordination) as registration:
        coordination.zookeeper.remove(WRITABLE)
        with monkeypatch.context() as patch:
            patch.setattr(coordination, "create", None)
            registration.review()
            await settle()
        assert coordination.zookeeper.tree.exists(WRITABLE) is None
        await asyncio.sleep(RESTART_S + 1)
        assert coordination.zookeeper.tree.exists(WRITABLE)
        assert registration.faults == 1


async def test_what_is_announced_later_stands_in_the_node_soon() -> None:
    coordination = bookie_session()
    async with make_registration(coordination) as registration:
        address = BookieInfo.of_address("10.0.0.1", 3181, http_port=8000)
        registration.announce(address)
        await settle()
        assert (
            BookieInfo.decode(coordination.zookeeper.tree.get(WRITABLE)[0], "bookie-1") == address
        )


async def test_the_node_of_our_own_earlier_life_is_taken_over_at_once() -> None:
    dead = bookie_session()
    await make_registration(dead)._register()
    coordination = dead.another()
    async with make_registration(coordination):
        assert (
            coordination.zookeeper.tree.get(WRITABLE)[1].ephemeral_owner == coordination.session_id
        )


async def test_a_new_session_gets_a_new_node() -> None:
    coordination = bookie_session()
    async with make_registration(coordination):
        first_id = coordination.session_id
        coordination.zookeeper.expire(coordination.client)
        assert coordination.zookeeper.tree.exists(WRITABLE) is None
        await settle()
        assert first_id != coordination.session_id
        assert (
            coordination.zookeeper.tree.get(WRITABLE)[1].ephemeral_owner == coordination.session_id
        )


async def test_a_closed_registration_does_not_come_back() -> None:
    coordination = bookie_session()
    async with make_registration(coordination):
        pass
    await end_session(coordination)
    await settle()
    assert coordination.zookeeper.tree.exists(WRITABLE) is None


async def test_a_read_only_bookie_stands_elsewhere_and_comes_back() -> None:
    coordination, mode = bookie_session(), Mode()
    async with make_registration(coordination, mode) as registration:
        mode.is_read_only = True
        registration.review()
        await settle()
        assert coordination.zookeeper.tree.exists(READ_ONLY)
        assert coordination.zookeeper.tree.exists(WRITABLE) is None
        mode.is_read_only = False
        registration.review()
        await settle()
        assert coordination.zookeeper.tree.exists(WRITABLE)
        assert coordination.zookeeper.tree.exists(READ_ONLY) is None
    assert not {WRITABLE, READ_ONLY} & set(coordination.zookeeper.tree.values())


async def test_what_changes_while_it_registers_is_registered_next() -> None:
    coordination, mode = bookie_session(), Mode()
    async with make_registration(coordination, mode) as registration:

        def change(verb: str, path: str) -> None:
            if (verb, path) == ("create", READ_ONLY):
                mode.is_read_only = False
                registration.review()

        mode.is_read_only = True
        registration.review()
        coordination.before = change
        await settle()
        assert coordination.zookeeper.tree.exists(WRITABLE)
        assert coordination.zookeeper.tree.exists(READ_ONLY) is None


async def test_a_bookie_says_once_where_it_is_registered(caplog: pytest.LogCaptureFixture) -> None:
    """Not that its node says something else, nor that it was looked for in vain."""
    caplog.set_level(logging.INFO)
    coordination, mode = bookie_session(), Mode()
    async with make_registration(coordination, mode) as registration:
        registration.announce(BookieInfo.of_address("10.0.0.1", 3181, http_port=8000))
        registration.review()
        await settle()
        mode.is_read_only = True
        registration.review()
        await settle()
        registration.review()
        await settle()
        await end_session(coordination)
        await settle()
    told = [each.__dict__["node"] for each in caplog.records if each.message == "bookie registered"]
    assert told == [WRITABLE, READ_ONLY, READ_ONLY]


async def test_registering_is_tried_again_while_zookeeper_is_away() -> None:
    coordination = bookie_session()
    async with make_registration(coordination):
        coordination.lose("", is_done=False)
        coordination.lose("", is_done=False)
        await end_session(coordination)
        await settle()
        assert coordination.zookeeper.tree.exists(WRITABLE) is None
        await asyncio.sleep(3 * RETRY_S)
        assert (
            coordination.zookeeper.tree.get(WRITABLE)[1].ephemeral_owner == coordination.session_id
        )


async def test_the_first_registration_must_succeed() -> None:
    coordination = bookie_session()
    coordination.lose("", is_done=False)
    with pytest.raises(ConnectionLost):
        async with make_registration(coordination):
            pass


async def test_leaving_without_zookeeper_ends_all_the_same() -> None:
    coordination = bookie_session()
    async with make_registration(coordination):
        registered = coordination.zookeeper.tree.get(WRITABLE)
        coordination.lose("", is_done=False)
    assert coordination.zookeeper.tree.get(WRITABLE) == registered
