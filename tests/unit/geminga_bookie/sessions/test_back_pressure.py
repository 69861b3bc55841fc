"""The intake holds every connection while too much is in memory, and lets all go on after."""

from __future__ import annotations

import asyncio

from geminga_bookie.sessions.back_pressure import MemoryBackPressure


class Pipe:
    """A connection that remembers what it was told; it leaves the intake when it ends."""

    def __init__(self, intake: MemoryBackPressure, *, closes: bool = True) -> None:
        self.told: list[str] = []
        self._intake = intake
        self._closes = closes
        intake.join(self)

    def hold(self) -> None:
        self.told.append("hold")

    def release(self) -> None:
        self.told.append("release")

    def close(self) -> None:
        self.told.append("close")
        if self._closes:
            asyncio.get_running_loop().call_soon(self._intake.leave, self)

    def abort(self) -> None:
        self.told.append("abort")
        self._intake.leave(self)


class Memory:
    """Says whether too much is in memory."""

    is_full = False

    def __call__(self) -> bool:
        return self.is_full


def test_everybody_is_told_once_of_each_change() -> None:
    memory = Memory()
    intake = MemoryBackPressure(memory)
    pipes = [Pipe(intake), Pipe(intake)]
    intake.review()
    memory.is_full = True
    intake.review()
    intake.review()
    memory.is_full = False
    intake.review()
    assert [pipe.told for pipe in pipes] == [["hold", "release"]] * 2
    assert intake.holds == 1


def test_who_comes_while_it_holds_is_held_too() -> None:
    memory = Memory()
    intake = MemoryBackPressure(memory)
    memory.is_full = True
    intake.review()
    pipe = Pipe(intake)
    assert pipe.told == ["hold"]
    intake.leave(pipe)
    memory.is_full = False
    intake.review()
    assert pipe.told == ["hold"]
    assert len(intake) == 0


async def test_closed_it_holds_for_good_and_lets_nobody_in() -> None:
    intake = MemoryBackPressure(Memory())
    pipe = Pipe(intake)
    intake.close()
    intake.review()
    late = Pipe(intake)
    await intake.disconnect(1.0)
    assert pipe.told == ["hold", "close"]
    assert late.told == ["abort"]
    assert len(intake) == 0


async def test_who_does_not_go_in_time_is_aborted() -> None:
    intake = MemoryBackPressure(Memory())
    patient, stubborn = Pipe(intake), Pipe(intake, closes=False)
    await intake.disconnect(1.0)
    assert patient.told == ["close"]
    assert stubborn.told == ["close", "abort"]
    await intake.disconnect(1.0)
