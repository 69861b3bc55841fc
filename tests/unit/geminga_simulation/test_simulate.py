"""``simulate``: one seed is one history, in this process and in every other."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

STORY = Path(__file__).with_name("story.py")


async def main() -> float:
    loop = asyncio.get_running_loop()
    async with World() as world:
        results = await asyncio.gather(
            *(world.zookeeper.session(name).create(f"/{name}") for name in "abc")
        )
        assert results == ["/a", "/b", "/c"]
        await asyncio.sleep(1)
    return loop.time()


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    assert simulate(4, main) == simulate(4, main)
    digests = {simulate(seed, main).trace for seed in range(10)}
    assert len(digests) == 10


def test_a_recording_tells_the_story_and_changes_nothing() -> None:
    plain, recorded = simulate(4, main), simulate(4, main, record=True)
    assert plain.trace == recorded.trace
    assert any("a asks /a" in line for line in recorded.lines)
    assert plain.lines == ()


def test_a_seed_repeats_in_every_process_whatever_its_hash_seed() -> None:
    def told_by_process(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, str(STORY), "7"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return run.stdout

    stories = {told_by_process(hash_seed) for hash_seed in ("0", "1", "random")}
    assert len(stories) == 1


def test_an_error_comes_out_and_leaves_nothing_running() -> None:
    async def fail() -> None:
        abandoned = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(1)
        raise ValueError(f"as planned, while {abandoned.get_name()} sleeps")

    with pytest.raises(ValueError, match="as planned"):
        simulate(1, fail)


def test_no_garbage_is_collected_meanwhile() -> None:
    async def look() -> bool:
        return gc.isenabled()

    outcome: Outcome[bool] = simulate(1, look)
    assert outcome.result is False
    assert gc.isenabled()
