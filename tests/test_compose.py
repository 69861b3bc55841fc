"""Proves that the image and the compose file say only what Geminga's commands and settings know.

What is typed into YAML is checked by nobody until a container starts; a wrong variable not even
then: it is only a warning in a log.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from geminga_bookie.part_settings import BookiePartSettings
from geminga_broker.settings import BrokerSettings
from geminga_cli.commands.part import settings_of
from geminga_cli.commands.standalone import parse
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SETTINGS: dict[str, type[Any]] = {
    "bookie": BookiePartSettings,
    "broker": BrokerSettings,
    "zookeeper": ZooKeeperPartSettings,
}
# A compose that hangs (a client waiting for a context far away) must not hold up the tests.
CONFIG_TIMEOUT_S = 30


def known_variables() -> set[str]:
    return {
        setting.variable(part)
        for part, settings_class in SETTINGS.items()
        for setting in settings_of(settings_class)
    }


def test_every_variable_is_a_setting() -> None:
    named = set(re.findall(r"\bGEMINGA_[A-Z]+_[A-Z_]+\b", COMPOSE + DOCKERFILE))
    assert named, "the compose file sets nothing?"
    assert named - known_variables() == set()


def test_every_command_exists() -> None:
    commands = re.findall(r"^    command: (\S+)$", COMPOSE, re.MULTILINE)
    commands += re.findall(r"^    command:\n      - (\S+)$", COMPOSE, re.MULTILINE)
    assert sorted(commands) == ["bookie", "broker", "initialize-cluster-metadata", "zookeeper"]
    assert set(commands) <= COMMANDS.keys()


def test_the_image_starts_a_standalone_as_its_options_are() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    name, *options = json.loads(command)
    assert name == "standalone"
    settings, _ = parse(options)
    assert settings.data_directory == Path("/data")


def test_the_image_gets_every_folder_that_the_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = set(re.findall(r"^COPY (\w+) \w+$", DOCKERFILE, re.MULTILINE))
    assert copied == {package.partition("/")[0] for package in packages}


def compose_command() -> list[str] | None:
    """``docker compose`` or the older ``docker-compose``; None where there is neither."""
    candidates = (["docker", "compose"], ["docker-compose"])
    return next((command for command in candidates if answers(command)), None)


def answers(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    asked = subprocess.run(
        [*command, "version"], capture_output=True, timeout=CONFIG_TIMEOUT_S, check=False
    )
    return asked.returncode == 0


def test_docker_understands_the_compose_file() -> None:
    command = compose_command()
    if command is None:
        pytest.skip("there is no docker client with compose here")
    checked = subprocess.run(
        [*command, "--file", str(ROOT / "docker-compose.yml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=CONFIG_TIMEOUT_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
