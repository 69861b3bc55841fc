"""Loads that a machine has not the tools for are left out, and said to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.performance.bench import Plan, run
from tests.performance.loads.pulsar_perf import why_left_out
from tests.performance.rivals.servers import Geminga


def test_the_loads_of_pulsars_own_tool_need_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PULSAR_HOME", raising=False)
    plan = Plan(
        geminga=Geminga(["/bin/false"]),  # nothing of it is started
        peers=[],
        only=frozenset({"perf-1k", "perf-100"}),
        rounds=1,
        scale=1,
        quiet_cores=0,
        directory=tmp_path,
    )
    run(plan, {})
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "perf-1k is left out",
        "perf-100 is left out",
    ]
    assert all("PULSAR_HOME" in line for line in lines)


def test_they_need_java_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pulsar-perf").touch()
    monkeypatch.setenv("PULSAR_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "JAVA_HOME" in why_left_out()
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    assert why_left_out() == ""
