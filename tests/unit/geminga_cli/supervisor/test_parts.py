"""Proves how the parts' processes are started: their words, their files, their gate."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from geminga_cli.embedded_zookeeper.configuration import (
    MAIN_CLASS,
    ZooKeeperSettings,
    configuration_text,
)
from geminga_cli.embedded_zookeeper.installation import Installation
from geminga_cli.gate import pass_gate
from geminga_cli.supervisor import parts
from geminga_cli.supervisor.lifecycle.orders import PartRules
from geminga_cli.supervisor.parts import (
    PythonPart,
    ZooKeeperPart,
)
from geminga_cli.supervisor.process import Command
from geminga_runtime.java import Java
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE, PART_NAME_VARIABLE

RULES = PartRules("bookie-2", stop_deadline_s=1.0)


class Started:
    """Stands in for ``Process``: notes what would have been started."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.inherited: tuple[int, ...] = ()
        self.kept: list[int] = []

    def __call__(self, command: Command, inherited: tuple[int, ...] = ()) -> Started:
        self.commands.append(command)
        self.inherited = tuple(inherited)
        self.kept = [os.dup(descriptor) for descriptor in self.inherited]
        return self


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()
    monkeypatch.setattr(parts, "Process", made)
    return made


def zookeeper_part(tmp_path: Path) -> ZooKeeperPart:
    jars = tmp_path / "jars"
    jars.mkdir()
    installation = Installation(Java(Path("/java"), "17"), jars, jars / "classes.jsa")
    settings = ZooKeeperSettings(tmp_path / "data" / "zookeeper", "127.0.0.1", 2181)
    return ZooKeeperPart(RULES, settings, installation)


def test_zookeeper_finds_its_configuration_written(tmp_path: Path, started: Started) -> None:
    part = zookeeper_part(tmp_path)
    part.launch()
    (command,) = started.commands
    assert command.words[0] == "/java"
    assert command.words[-2] == MAIN_CLASS
    assert Path(command.words[-1]).read_text() == configuration_text(part.settings)
    assert command.log_file == tmp_path / "data" / "zookeeper" / "zookeeper.log"
    part.launch()  # on what is there already


def test_on_a_full_disk_zookeeper_is_started_with_the_configuration_it_has(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = zookeeper_part(tmp_path)
    part.launch()

    def write(_self: Path, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    part.launch()
    assert Path(started.commands[1].words[-1]).read_text() == configuration_text(part.settings)


def test_a_class_archive_is_only_named_where_there_is_one(tmp_path: Path, started: Started) -> None:
    part = zookeeper_part(tmp_path)
    part.launch()
    (tmp_path / "jars" / "classes.jsa").touch()
    part.launch()
    without, with_it = started.commands
    assert f"-XX:SharedArchiveFile={tmp_path}/jars/classes.jsa" not in without.words
    assert f"-XX:SharedArchiveFile={tmp_path}/jars/classes.jsa" in with_it.words


def test_a_python_part_is_told_its_options_its_control_socket_its_name_and_its_gate(
    started: Started,
) -> None:
    options = {"--port": "1", "--no-sync": ""}
    part = PythonPart(RULES, "bookie", options, control_socket=Path("/c.sock"), inherited=(0,))
    part.launch()
    (command,) = started.commands
    words = ["-m", "geminga_cli", "bookie", "--port", "1", "--no-sync"]
    assert list(command.words) == [sys.executable, *words]
    assert command.environment[CONTROL_SOCKET_VARIABLE] == "/c.sock"
    assert command.environment[PART_NAME_VARIABLE] == "bookie-2"
    assert command.log_file is None
    assert started.inherited[0] == 0
    gate = started.kept[1]
    part.release()
    assert pass_gate({"GEMINGA_GATE_DESCRIPTOR": str(gate)}, [])
    os.close(started.kept[0])


def test_a_part_that_is_started_again_gets_a_gate_of_its_own(started: Started) -> None:
    part = PythonPart(RULES, "bookie", {}, control_socket=Path("/c.sock"))
    part.launch()
    first = started.kept[0]
    part.launch()
    second = started.kept[0]
    part.release()
    assert not pass_gate({"GEMINGA_GATE_DESCRIPTOR": str(first)}, [])
    assert pass_gate({"GEMINGA_GATE_DESCRIPTOR": str(second)}, [])


def test_a_launch_without_descriptors_is_an_error_that_passes(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = PythonPart(RULES, "bookie", {}, control_socket=Path("/c.sock"))
    part.launch()

    def refuse() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="Too many open files"):
                part.launch()
    part.release()
    part.launch()
    assert len(started.commands) == 2
    for descriptor in started.kept:
        os.close(descriptor)
