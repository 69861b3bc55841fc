"""Every connection is held while too much is in memory, and released after."""

from __future__ import annotations

import asyncio

from geminga_bookie.sessions.back_pressure import MemoryBackPressure


class Pipe:
    """A connection that remembers its orders; it leaves when it ends."""

    def __init__(self, pressure: MemoryBackPressure, *, closes: bool = True) -> None:
        self.told: list[str] = []
        self._pressure = pressure
        self._closes = closes
        pressure.join(self)

    def set_held(self, *, is_held: bool) -> None:
        self.told.append("hold" if is_held else "release")

    def close(self) -> None:
        self.told.append("close")
        if self._closes:
            asyncio.get_running_loop().call_soon(self._pressure.leave, self)

    def abort(self) -> None:
        self.told.append("abort")
        self._pressure.leave(self)


class Memory:
    """Says whether too much is in memory."""

    is_full = False

    def __call__(self) -> bool:
        return self.is_full


def test_each_connection_is_told_once_of_each_change() -> None:
    memory = Memory()
    pressure = MemoryBackPressure(memory)
    pipes = [Pipe(pressure), Pipe(pressure)]
    pressure.review()
    memory.is_full = True
    pressure.review()
    pressure.review()
    memory.is_full = False
    pressure.review()
    assert [pipe.told for pipe in pipes] == [["hold", "release"]] * 2
    assert pressure.holds == 1


def test_a_connection_that_joins_while_others_are_held_is_held_too() -> None:
    memory = Memory()
    pressure = MemoryBackPressure(memory)
    memory.is_full = True
    pressure.review()
    pipe = Pipe(pressure)
    assert pipe.told == ["hold"]
    pressure.leave(pipe)
    memory.is_full = False
    pressure.review()
    assert pipe.told == ["hold"]
    assert len(pressure.connections) == 0


async def test_once_closed_it_holds_all_connections_and_aborts_new_ones() -> None:
    pressure = MemoryBackPressure(Memory())
    pipe = Pipe(pressure)
    pressure.close()
    pressure.review()
    late = Pipe(pressure)
    await pressure.disconnect(1.0)
    assert pipe.told == ["hold", "close"]
    assert late.told == ["abort"]
    assert len(pressure.connections) == 0


async def test_a_connection_that_does_not_end_in_time_is_aborted() -> None:
    pressure = MemoryBackPressure(Memory())
    patient, stubborn = Pipe(pressure), Pipe(pressure, closes=False)
    await pressure.disconnect(1.0)
    assert patient.told == ["close"]
    assert stubborn.told == ["close", "abort"]
    await pressure.disconnect(1.0)
