"""Proves what the supervisor prints: READY, what to try next, the no-sync warning."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from geminga_cli.supervisor.console import Tools, next_steps, no_sync_warning, ready_line


def test_the_ready_line_is_exactly_what_programs_wait_for() -> None:
    line = ready_line("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
    assert line == "READY pulsar://127.0.0.1:6650 http://127.0.0.1:8080"


@pytest.mark.parametrize("has_official_client", [True, False])
@pytest.mark.parametrize("has_curl", [True, False])
def test_the_next_steps_use_the_real_addresses_and_what_is_there(
    *, has_official_client: bool, has_curl: bool
) -> None:
    tools = Tools("bin/python", has_official_client=has_official_client, has_curl=has_curl)
    words = next_steps("pulsar://127.0.0.1:1", "http://127.0.0.1:2", tools)
    assert "pulsar://127.0.0.1:1" in words
    assert "http://127.0.0.1:2/admin" in words
    assert ("import pulsar" in words) is has_official_client
    assert ("import asyncio, geminga" in words) is not has_official_client
    assert ("curl" in words) is has_curl
    programs = {line.split()[0] for line in words.splitlines() if " -c " in line}
    assert programs == {"bin/python"}


def test_our_python_is_written_as_it_is_called_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env" / "bin" / "python"))
    assert Tools.at_hand().python == "'my env/bin/python'"
    monkeypatch.setattr(sys, "executable", "/opt/python")
    assert Tools.at_hand().python == "/opt/python"


def test_the_no_sync_warning_says_what_is_at_stake() -> None:
    assert "LOSES ACKNOWLEDGED MESSAGES" in no_sync_warning()
