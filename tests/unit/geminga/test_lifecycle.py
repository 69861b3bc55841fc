"""Proves that what is opened can be awaited or entered, and that entering also closes."""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Any, Self

import pytest

from geminga import Opening


class Door:
    """What the tests open."""

    def __init__(self) -> None:
        self.closed_by: list[type[BaseException] | None] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closed_by.append(kind)


async def opened(door: Door) -> Door:
    return door


async def locked() -> Door:
    raise PermissionError


async def test_what_is_awaited_stays_open() -> None:
    door = Door()
    assert await Opening(opened(door)) is door
    assert door.closed_by == []


async def test_leaving_the_block_closes_what_was_opened_with_the_blocks_error() -> None:
    door = Door()
    async with Opening(opened(door)) as entered:
        assert entered is door
    with pytest.raises(ZeroDivisionError):
        async with Opening(opened(door)):
            raise ZeroDivisionError
    assert door.closed_by == [None, ZeroDivisionError]


async def test_what_cannot_be_opened_says_why_both_ways() -> None:
    with pytest.raises(PermissionError):
        await Opening(locked())
    with pytest.raises(PermissionError):
        async with Opening(locked()):
            pass


async def test_what_is_not_open_yet_says_how_it_is_opened() -> None:
    door: Any = Opening(opened(Door()))
    with pytest.raises(AttributeError, match=r"'closed_by' .*await it first"):
        _ = door.closed_by
    await door


async def test_python_warns_about_what_is_never_opened() -> None:
    def forget() -> None:
        Opening(opened(Door()))
        gc.collect()

    with pytest.warns(RuntimeWarning, match="never awaited"):
        forget()
