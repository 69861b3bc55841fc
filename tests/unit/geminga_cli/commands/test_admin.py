"""Proves what the command line of ``geminga admin`` says and returns."""

from __future__ import annotations

import pytest

from geminga_cli.commands.admin import COMMANDS, EXIT_MISUSED, EXIT_REFUSED, GROUPS, main


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINGA_ADMIN_URL", "http://127.0.0.1:1")


def test_without_a_group_the_groups_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == EXIT_MISUSED
    shown = capsys.readouterr().out
    assert all(f"  {group} " in shown for group in GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_tells_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([group]) == 0
    name = group if group in COMMANDS else f"admin {group}"
    assert f"usage: geminga {name} COMMAND" in capsys.readouterr().out


def test_options_may_stand_behind_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = "http://127.0.0.1:1"
    assert main(["functions", "--admin-url", nowhere, "list"]) == EXIT_REFUSED
    assert nowhere in capsys.readouterr().err


def test_a_command_that_there_is_not_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "stat"]) == EXIT_MISUSED
    assert "has no command 'stat'; do you mean stats" in capsys.readouterr().err


def test_a_command_tells_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["topics", "skip", "--help"])
    assert "--subscription" in capsys.readouterr().out


def test_a_wrong_value_is_told_with_a_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=str(EXIT_MISUSED)):
        main(["namespaces", "set-message-ttl", "a/b", "-ttl", "soon"])
    assert "'soon' should be a span of time, as 90" in capsys.readouterr().err


def test_options_that_do_not_go_together_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["namespaces", "set-deduplication", "a/b"]) == EXIT_MISUSED
    assert "one of --enable and --disable is needed" in capsys.readouterr().err


def test_where_no_broker_answers_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tenants", "list"]) == EXIT_REFUSED
    assert "no broker answers at http://127.0.0.1:1" in capsys.readouterr().err
