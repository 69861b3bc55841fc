"""Proves that the supervisor does what operators ask for, through the socket that its parts use."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.unit.geminga_cli.supervisor.test_supervisor import SmallPart, Stage

from geminga_cli.errors import CannotObey, NoSupervisor
from geminga_cli.supervisor.lifecycle.fleet import ASKED_FOR
from geminga_cli.supervisor.operators import Operator
from geminga_runtime.clock import SystemClock
from geminga_runtime.control_codec import Instruction
from geminga_server.control.client import instruct


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, *parts_in(tmp_path))


def parts_in(directory: Path) -> list[SmallPart]:
    """Two parts that do not need each other."""
    return [SmallPart(directory, "first"), SmallPart(directory, "second")]


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


async def test_a_part_that_is_kept_down_before_all_are_ready_announces_nothing(
    tmp_path: Path, operator: Operator
) -> None:
    slow = SmallPart(tmp_path, "second", manner="slow")
    stage = Stage(tmp_path, SmallPart(tmp_path, "first"), slow)
    async with stage.running() as supervisor:
        await operator.kill("first", keep_down=True)
        while (await operator.status())["first"]["state"] != "down":
            pass  # asking is what waits
        assert stage.heard.empty()
        supervisor.stop()
        assert await supervisor.finished is None


async def test_a_paused_part_stands_still_longer_than_one_that_hangs_may(
    tmp_path: Path, operator: Operator
) -> None:
    stage = Stage(tmp_path, *parts_in(tmp_path), hang_limit_s=1.0)
    async with stage.running():
        before = await stage.heard.get()
        paused, hanging = before["first"].pid, before["second"].pid
        assert paused is not None
        assert hanging is not None
        await operator.pause("first")
        assert (await operator.status())["first"]["state"] == "paused"
        assert next_change(paused) == os.CLD_STOPPED
        # The second hangs, is killed for it, and is back: meanwhile the first is left alone.
        os.kill(hanging, signal.SIGSTOP)
        await stage.heard.get()
        await operator.resume("first")
        assert (await operator.status())["first"]["state"] == "ready"
        assert next_change(paused) == os.CLD_CONTINUED
        assert (await operator.status())["first"]["pid"] == paused


def next_change(pid: int) -> int:
    """What becomes of a process of ours next; waits for it, as a signal takes effect only when the
    kernel next runs the process. Its end is left to be found by the supervisor."""
    changes = os.WSTOPPED | os.WCONTINUED | os.WEXITED
    # A stop that was seen is not to be seen again, an end is.
    found = os.waitid(os.P_PID, pid, changes | os.WNOWAIT)
    assert found is not None
    if found.si_code in (os.CLD_STOPPED, os.CLD_CONTINUED):
        os.waitid(os.P_PID, pid, changes & ~os.WEXITED)
    return found.si_code


async def test_a_paused_part_stops_with_the_others_in_order(
    stage: Stage, operator: Operator
) -> None:
    async with stage.running() as supervisor:
        await stage.heard.get()
        await operator.pause("first")
        stopping = asyncio.create_task(operator.stop())
        assert await supervisor.finished is None
        assert supervisor.returncodes["first"] == 0
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
