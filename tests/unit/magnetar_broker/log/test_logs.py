"""Proves that logs and cursors are found by name, made once, and made whole after a lost answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.unit.magnetar_broker.log.stand_ins import (
    LOG,
    MemoryLedgers,
    NotedListener,
    log_over,
    logs_over,
)

from magnetar_broker.errors import TopicNotFound
from magnetar_broker.log.logs import Logs
from magnetar_broker.log.managed_ledger import ManagedLedger
from magnetar_broker.log.positions import Position
from magnetar_runtime.coordination import Coordination, NodeMissing

AT = Position(0, -1)


@pytest.fixture
def logs(coordination: Coordination) -> Logs:
    """The broker's logs."""
    return logs_over(coordination, MemoryLedgers())


@pytest.fixture
async def log(logs: Logs) -> AsyncIterator[ManagedLedger]:
    """One of them, open."""
    async with log_over(logs) as log:
        yield log


async def test_a_log_that_may_not_be_made_is_missing(logs: Logs) -> None:
    assert not await logs.exists(LOG)
    with pytest.raises(NodeMissing):
        await logs.log(LOG, NotedListener(), create_with=None).__aenter__()
    assert not await logs.exists(LOG)


async def test_a_log_exists_once_it_was_made(logs: Logs, log: ManagedLedger) -> None:
    assert await logs.exists(log.name)


async def test_cursors_are_listed_by_the_names_their_subscriptions_have(
    logs: Logs, log: ManagedLedger
) -> None:
    for name in ("plain", "a/b %?"):
        async with await logs.create_cursor(LOG, name, log.chain, AT, {}):
            pass
    assert sorted(await logs.cursor_names(LOG)) == ["a/b %?", "plain"]


async def test_a_log_that_is_gone_has_no_cursors_to_list(logs: Logs) -> None:
    with pytest.raises(TopicNotFound):
        await logs.cursor_names(LOG)


async def test_a_stored_cursor_is_loaded_with_its_labels(logs: Logs, log: ManagedLedger) -> None:
    async with await logs.create_cursor(LOG, "sub", log.chain, AT, {"team": "blue"}) as made:
        assert made.is_durable
    async with await logs.load_cursor(LOG, "sub", log.chain) as found:
        assert (found.mark_delete, found.properties) == (AT, {"team": "blue"})


async def test_a_cursor_left_by_an_attempt_without_answer_is_taken_as_it_stands(
    logs: Logs, log: ManagedLedger
) -> None:
    async with await logs.create_cursor(LOG, "sub", log.chain, AT, {}):
        pass
    async with await logs.create_cursor(LOG, "sub", log.chain, Position(0, 5), {}) as again:
        assert again.mark_delete == AT


async def test_a_volatile_cursor_is_stored_nowhere(logs: Logs, log: ManagedLedger) -> None:
    async with logs.volatile_cursor("reader", log.chain, AT) as cursor:
        assert not cursor.is_durable
        assert await logs.cursor_names(LOG) == []
