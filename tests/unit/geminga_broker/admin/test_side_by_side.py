"""Proves that work on many topics goes on side by side, within its bound, past what goes wrong."""

from __future__ import annotations

import asyncio

import pytest

from geminga_broker.admin.side_by_side import WIDTH, side_by_side


async def test_work_goes_on_side_by_side_but_not_all_at_once() -> None:
    at_work: list[int] = []
    most, done = 0, list[int]()

    async def work(item: int) -> None:
        nonlocal most
        at_work.append(item)
        most = max(most, len(at_work))
        await asyncio.sleep(0)
        at_work.remove(item)
        done.append(item)

    await side_by_side(work, range(3 * WIDTH))
    assert most == WIDTH
    assert sorted(done) == list(range(3 * WIDTH))


async def test_what_goes_wrong_is_told_when_all_are_done() -> None:
    done: list[int] = []

    async def work(item: int) -> None:
        if item < 2:
            raise ValueError(f"item {item}")
        await asyncio.sleep(0)
        done.append(item)

    with pytest.raises(ValueError, match="item 0"):
        await side_by_side(work, range(5))
    assert done == [2, 3, 4]
