"""Proves what the supervisor prints: READY, what to try next, the no-sync warning."""

from __future__ import annotations

from geminga_cli.supervisor.console import next_steps, no_sync_warning, ready_line


def test_the_ready_line_is_exactly_what_programs_wait_for() -> None:
    line = ready_line("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")
    assert line == "READY pulsar://127.0.0.1:6650 http://127.0.0.1:8080"


def test_the_next_steps_use_the_real_addresses() -> None:
    words = next_steps("pulsar://127.0.0.1:1", "http://127.0.0.1:2")
    assert "pulsar://127.0.0.1:1" in words
    assert "http://127.0.0.1:2/admin" in words


def test_the_no_sync_warning_says_what_is_at_stake() -> None:
    assert "LOSES ACKNOWLEDGED MESSAGES" in no_sync_warning()
