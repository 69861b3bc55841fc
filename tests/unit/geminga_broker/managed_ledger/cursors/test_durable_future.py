"""Proves that a task that waits for a cursor's write gets one outcome, and may give up before."""

from __future__ import annotations

import asyncio

import pytest

from geminga_broker.errors import ServiceNotReady
from geminga_broker.managed_ledger.cursors.durable_future import DurableFuture


async def test_waiting_ends_when_the_change_is_durable() -> None:
    durable = DurableFuture()
    assert not durable.done()
    durable(None)
    await durable


async def test_a_waiting_task_gets_the_error_of_a_change_that_never_will_be_durable() -> None:
    durable = DurableFuture()
    durable(ServiceNotReady("nothing was saved"))
    with pytest.raises(ServiceNotReady, match="nothing was saved"):
        await durable


async def test_what_is_told_first_holds() -> None:
    durable = DurableFuture()
    durable(None)
    durable(ServiceNotReady("too late"))
    await durable


async def test_a_cancelled_future_takes_no_outcome() -> None:
    durable = DurableFuture()
    durable.cancel()
    with pytest.raises(asyncio.CancelledError):
        await durable
    durable(ServiceNotReady("no task waits"))
