"""Proves that the supervisor does what operators ask for, through the socket that its parts use."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.unit.geminga_cli.supervisor.test_supervisor import SmallPart, Stage

from geminga_cli.errors import CannotObey, NoSupervisor
from geminga_cli.supervisor.fleet import ASKED_FOR
from geminga_cli.supervisor.operators import Operator
from geminga_runtime.clock import SystemClock
from geminga_runtime.control_codec import Instruction
from geminga_server.control import instruct


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Parts that may hang for a second."""
    parts = [SmallPart(tmp_path, "first"), SmallPart(tmp_path, "second")]
    return Stage(tmp_path, *parts, hang_limit_s=1.0)


@pytest.fixture
def operator(stage: Stage) -> Operator:
    return Operator(stage.directory, SystemClock())


async def test_the_status_names_every_part_with_its_process_and_addresses(
    stage: Stage, operator: Operator
) -> None:
    async with stage.running():
        endpoints = await stage.heard.get()
        status = await operator.status()
    assert status["first"] == {
        "part": "first",
        "state": "ready",
        "pid": endpoints["first"].pid,
        "restarts": 0,
        "log": None,
        "addresses": {"pulsar": "pulsar://first"},
    }
    assert list(status) == ["first", "second"]


async def test_a_part_that_is_killed_comes_back(
    stage: Stage, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage.running():
        before = await stage.heard.get()
        await operator.kill("first")
        after = await stage.heard.get()
        assert after["first"].pid != before["first"].pid
        assert (await operator.status())["first"]["restarts"] == 1
    assert ASKED_FOR in {record.__dict__.get("reason") for record in caplog.records}


async def test_a_part_that_is_kept_down_has_no_endpoints_until_it_is_resumed(
    stage: Stage, operator: Operator
) -> None:
    async with stage.running():
        before = await stage.heard.get()
        await operator.kill("first", keep_down=True)
        assert (await stage.heard.get()).keys() == {"second"}
        down = (await operator.status())["first"]
        assert (down["state"], down["pid"], down["addresses"]) == ("down", None, {})
        await operator.resume("first")
        after = await stage.heard.get()
        assert after["first"].pid != before["first"].pid


async def test_a_paused_part_stands_still_longer_than_one_that_hangs_may(
    stage: Stage, operator: Operator
) -> None:
    async with stage.running():
        before = await stage.heard.get()
        paused = before["first"].pid
        await operator.pause("first")
        assert (await operator.status())["first"]["state"] == "paused"
        assert process_state(paused) == "T"
        # The second hangs, is killed for it, and is back: meanwhile the first is left alone.
        assert before["second"].pid is not None
        os.kill(before["second"].pid, signal.SIGSTOP)
        await stage.heard.get()
        await operator.resume("first")
        assert (await operator.status())["first"]["state"] == "ready"
        assert process_state(paused) != "T"
        assert (await operator.status())["first"]["pid"] == paused


def process_state(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_paused_part_stops_with_the_others_in_order(
    stage: Stage, operator: Operator
) -> None:
    async with stage.running() as supervisor:
        await stage.heard.get()
        await operator.pause("first")
        stopping = asyncio.create_task(operator.stop())
        assert await supervisor.run() is None
        assert supervisor.returncode("first") == 0
    await stopping
    assert stage.notes()[-1] == "first stops"


async def test_a_part_that_is_added_is_ready_like_the_others(
    stage: Stage, operator: Operator
) -> None:
    async with stage.running():
        await stage.heard.get()
        added = await operator.add("third")
        assert (added["part"], added["state"]) == ("third", "ready")
        endpoints = await stage.heard.get()
        assert endpoints["third"].addresses == added["addresses"] == {"pulsar": "pulsar://third"}
    assert "third stops" in stage.notes()


@pytest.mark.parametrize(
    ("action", "part", "reason"),
    [
        ("dance", "first", "does not know 'dance'"),
        ("kill", "third", "no part 'third'; there are first, second"),
        ("resume", "first", "neither paused nor kept down"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_the_reason(
    stage: Stage, action: str, part: str, reason: str
) -> None:
    async with stage.running():
        await stage.heard.get()
        refused = await instruct(stage.directory / "control.sock", Instruction(action, part))
    assert not refused.is_done
    assert reason in refused.text


async def test_without_a_supervisor_the_operator_is_told_what_to_do(operator: Operator) -> None:
    with pytest.raises(NoSupervisor, match="geminga cluster up"):
        await operator.status()


async def test_a_refusal_is_an_error_of_the_operators(stage: Stage, operator: Operator) -> None:
    async with stage.running():
        await stage.heard.get()
        with pytest.raises(CannotObey, match="no part 'third'"):
            await operator.pause("third")
