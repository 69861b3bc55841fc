"""Proves that a log keeps the order of its entries while it turns from one ledger to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.unit.geminga_broker.managed_ledger.stand_ins import (
    MemoryLedgers,
    NotedListener,
    log_over,
    logs_over,
    pending,
)

from geminga_ledger import AppendTimedOut
from geminga_runtime.coordination import Coordination

Settle = Callable[[], Awaitable[None]]


async def test_what_a_ledger_that_fails_as_it_ends_had_not_confirmed_comes_first(
    coordination: Coordination, settle: Settle
) -> None:
    listener, ledgers = NotedListener(), MemoryLedgers(is_prompt=False)
    async with log_over(logs_over(coordination, ledgers), listener) as log:
        log.append_all(pending(b"a"))
        rolling = asyncio.ensure_future(log.roll_over())
        await settle()
        log.append_all(pending(b"b"))
        ledgers.writers[0].fail(AppendTimedOut(0, 0, 60.0))
        await settle()
        ledgers.writers[1].confirm()
        await rolling
        assert [payload for _, payload in listener.appended] == [b"a", b"b"]
