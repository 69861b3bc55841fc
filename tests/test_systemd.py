"""Proves that the units say only what systemd, Geminga's commands and settings know."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminga_autorecovery.config import AutoRecoveryPartConfig
from geminga_bookie.config import BookieConfig
from geminga_broker.config import BrokerConfig
from geminga_cli.commands import standalone
from geminga_cli.commands.parts import autorecovery, bookie, broker, zookeeper
from geminga_cli.commands.parts.part_command import make_parser
from geminga_cli.commands.parts.settings_help import HelpPages
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.supervisor.settings import StandaloneSettings
from geminga_server.config import settings_of

UNITS = Path(__file__).resolve().parent.parent / "docs" / "systemd"
PROGRAM = "/opt/geminga/bin/geminga"
STANDALONE: dict[str, tuple[type[Any], HelpPages]] = {
    "standalone": (StandaloneSettings, standalone.PAGES)
}
PARTS: dict[str, tuple[type[Any], HelpPages]] = {
    "autorecovery": (AutoRecoveryPartConfig, autorecovery.PAGES),
    "bookie": (BookieConfig, bookie.PAGES),
    "broker": (BrokerConfig, broker.PAGES),
    "zookeeper": (ZooKeeperPartSettings, zookeeper.PAGES),
}
CASES = [("geminga.service", name) for name in STANDALONE] + [
    ("geminga@.service", name) for name in PARTS
]
VERIFY_TIMEOUT_S = 60


def unit(name: str, instance: str) -> str:
    """The unit as systemd reads it for this instance."""
    return (UNITS / name).read_text().replace("%i", instance)


@pytest.mark.parametrize(("name", "command"), CASES)
def test_what_is_started_is_a_command_with_options_it_has(name: str, command: str) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit(name, command), re.MULTILINE)
    program, found, *options = line.split()
    assert (program, found) == (PROGRAM, command)
    given = make_parser(command, *(STANDALONE | PARTS)[command]).parse_args(options)
    assert given.config == Path("/etc/geminga/geminga.toml")


@pytest.mark.parametrize(("name", "command"), CASES)
def test_every_variable_is_a_setting(name: str, command: str) -> None:
    known = {
        setting.variable(part)
        for part, (settings_class, _) in PARTS.items()
        for setting in settings_of(settings_class).values()
    }
    assert set(re.findall(r"\bGEMINGA_\w+", unit(name, command))) <= known


@pytest.mark.parametrize(("name", "command"), CASES)
def test_systemd_understands_the_unit(tmp_path: Path, name: str, command: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    file = tmp_path / name.replace("@", f"@{command}")
    # A program that is there: that ours is not at its place here is no fault of the unit.
    file.write_text(unit(name, command).replace(PROGRAM, sys.executable))
    checked = subprocess.run(
        [analyze, "verify", str(file)],
        capture_output=True,
        text=True,
        timeout=VERIFY_TIMEOUT_S,
        check=False,
    )
    # What is not about our unit is about this machine's; and ZooKeeper does not start after itself.
    complaints = [
        line
        for line in checked.stderr.splitlines()
        if f"{file.name}:" in line and "Dependency After=geminga@zookeeper" not in line
    ]
    assert (checked.returncode, complaints) == (0, []), checked.stderr
