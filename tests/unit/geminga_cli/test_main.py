"""Proves that the right command runs, that errors become one line, and what must not be loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from geminga_cli import main as module
from geminga_cli.errors import SetupFailed
from geminga_cli.main import COMMANDS, EXIT_INTERRUPTED, EXIT_REFUSED, main, usage


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told == usage()
    for name, command in COMMANDS.items():
        assert name in told
        assert command.summary in told


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == main(["version"]) == 0
    assert capsys.readouterr().out.startswith("geminga ")


def test_an_unknown_command_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["brokre"]) == EXIT_REFUSED
    told = capsys.readouterr().err
    assert "no command 'brokre'" in told
    assert usage() in told


def test_an_option_in_front_of_the_command_is_told_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--url", "pulsar://localhost:6650", "produce", "orders"]) == EXIT_REFUSED
    assert "options such as --url stand behind it" in capsys.readouterr().err


class FailingCommand:
    """Stands in for the module of a command, and for importing it."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, _name: str) -> FailingCommand:
        return self

    def main(self, _arguments: Sequence[str]) -> int:
        raise self._error


def test_our_own_errors_become_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "import_module", FailingCommand(SetupFailed("no jars here")))
    assert main(["standalone"]) == EXIT_REFUSED
    assert capsys.readouterr().err == "geminga: no jars here\n"


def test_without_the_servers_packages_their_commands_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = ModuleNotFoundError("No module named 'annotated_types'", name="annotated_types")
    monkeypatch.setattr(module, "import_module", FailingCommand(missing))
    assert main(["standalone"]) == EXIT_REFUSED
    assert capsys.readouterr().err == (
        "geminga: this command runs servers, and annotated_types is not installed: "
        "pip install 'geminga[standalone]' brings all that they need\n"
    )


def test_a_module_of_our_own_that_is_missing_stays_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = ModuleNotFoundError("No module named 'geminga_cli.gone'", name="geminga_cli.gone")
    monkeypatch.setattr(module, "import_module", FailingCommand(broken))
    with pytest.raises(ModuleNotFoundError):
        main(["standalone"])


def test_ctrl_c_before_anything_runs_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "import_module", FailingCommand(KeyboardInterrupt()))
    assert main(["standalone"]) == EXIT_INTERRUPTED


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: geminga {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        (["help", "standalone"], ["standalone", "--help"]),
        (["help", "broker"], ["broker", "--help"]),
        (["help", "broker", "cache"], ["broker", "--help-all", "cache"]),
        (["help", "bookie-admin", "list-ledgers"], ["bookie-admin", "list-ledgers", "--help"]),
    ],
)
def test_help_of_a_command_is_what_the_command_says_of_itself(
    asked: list[str], same: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    for words in (asked, same):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != ""


def test_help_of_a_command_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "brokre"]) == EXIT_REFUSED
    assert "no command 'brokre'" in capsys.readouterr().err


def loaded_by(code: str) -> set[str]:
    """The modules in a fresh Python after it ran ``code``."""
    printed = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    return set(printed.stdout.splitlines()[-1].split())


def test_help_loads_no_event_loop_and_no_part() -> None:
    loaded = loaded_by("from geminga_cli.main import main; main(['--help'])")
    assert not loaded & {"asyncio", "logging", "argparse", "geminga_broker", "geminga_server"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_loads_nothing_that_only_running_it_needs(name: str) -> None:
    """Without this, help of a part takes a quarter of a second."""
    code = f"""
from geminga_cli.main import main
try:
    main(['{name}', '--help'])
except SystemExit:
    pass
"""
    heavy = {"asyncio", "uvloop", "kazoo", "pydantic", "fastapi", "google.protobuf", "crc32c"}
    assert not loaded_by(code) & heavy


def test_the_supervisor_starts_its_children_before_it_loads_an_event_loop() -> None:
    loaded = loaded_by("import geminga_cli.commands.standalone")
    assert not loaded & {"asyncio", "uvloop", "logging", "msgpack", "tarfile", "tempfile"}


def test_the_supervisor_never_loads_what_only_its_parts_need() -> None:
    loaded = loaded_by("import geminga_cli.commands.standalone, geminga_cli.supervisor.run")
    heavy = {"kazoo", "pydantic", "fastapi", "uvicorn", "structlog", "prometheus_client", "google"}
    assert not loaded & (heavy | {"geminga_broker", "geminga_bookie", "typer", "rich"})
