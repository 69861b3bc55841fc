"""Proves that the image and the compose file say only what Geminga's commands and settings know.

What is typed into YAML is checked by nobody until a container starts; a wrong variable not even
then: it is only a warning in a log. What needs an engine is proven in ``tests/containers``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import uvloop.loop as uvloop_module

from geminga_bookie.config import BookieConfig
from geminga_broker.config import BrokerConfig
from geminga_cli.commands.standalone import parse
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.main import COMMANDS
from geminga_cli.supervisor.settings import StandaloneSettings
from geminga_proxy.config import ProxyConfig
from geminga_server.config import settings_of

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
CONFIGS: dict[str, type[Any]] = {
    "bookie": BookieConfig,
    "broker": BrokerConfig,
    "proxy": ProxyConfig,
    "standalone": StandaloneSettings,
    "zookeeper": ZooKeeperPartSettings,
}
# A compose that hangs (a client waiting for a context far away) must not hold up the tests.
CONFIG_TIMEOUT_S = 30
# The first that waits for a container that ends (service_completed_successfully).
COMPOSE_VERSION_MIN = (1, 29)


def known_variables() -> set[str]:
    return {
        setting.variable(part)
        for part, config in CONFIGS.items()
        for setting in settings_of(config).values()
    }


def test_every_variable_is_a_setting() -> None:
    named = set(re.findall(r"\bGEMINGA_[A-Z]+_[A-Z_]+\b", COMPOSE + DOCKERFILE))
    assert named, "the compose file sets nothing?"
    assert named - known_variables() == set()


def test_every_command_exists() -> None:
    commands = re.findall(r"^ +command: (\S+)$", COMPOSE, re.MULTILINE)
    commands += re.findall(r"^ +command:\n +- (\S+)$", COMPOSE, re.MULTILINE)
    assert sorted(commands) == [
        *("bookie", "broker", "initialize-cluster-metadata", "proxy", "zookeeper")
    ]
    assert set(commands) <= COMMANDS.keys()


def test_the_image_starts_a_standalone_as_its_options_are() -> None:
    *_, command = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    name, *options = json.loads(command)
    assert name == "standalone"
    settings, _ = parse(options)
    folders = re.findall(r"^WORKDIR (.*)$", DOCKERFILE, re.MULTILINE)
    within = settings.data_directory.relative_to(Path.cwd())
    assert Path(folders[-1]) / within == Path("/pulsar/data")


def test_the_image_gets_every_folder_that_the_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = set(re.findall(r"^COPY (\w+) \w+$", DOCKERFILE, re.MULTILINE))
    assert copied == {package.partition("/")[0] for package in packages}


def test_the_image_asks_a_part_for_its_health_by_a_command() -> None:
    (words,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, command, *_ = json.loads(words)
    assert program == "geminga"
    assert command in COMMANDS


def test_no_container_gets_a_volume_that_nobody_named() -> None:
    assert "VOLUME" not in DOCKERFILE


def test_the_image_is_built_once_and_every_part_outlives_a_reboot() -> None:
    assert COMPOSE.count("build:") == 1
    assert re.findall(r"^  restart: (.*)$", COMPOSE, re.MULTILINE) == ["unless-stopped"]
    # The one that does something once, and ends.
    assert re.findall(r"^    restart: (.*)$", COMPOSE, re.MULTILINE) == ['"no"']


@pytest.mark.parametrize("key", ["name", "start_interval", "version"])
def test_the_compose_file_has_no_key_that_compose_1_29_refuses_or_a_new_one_warns_of(
    key: str,
) -> None:
    assert not re.search(rf"^ *{key}:", COMPOSE, re.MULTILINE)


def with_variables(text: str, variables: dict[str, str]) -> str:
    """``${NAME:-default}`` filled in as compose does it."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda each: variables.get(each[1], each[2]), text)


@pytest.mark.parametrize("variables", [{}, {"BROKER_PORT": "7650", "WEB_PORT": "9080"}])
def test_the_proxy_alone_is_published_at_the_ports_where_it_listens(
    variables: dict[str, str],
) -> None:
    filled = with_variables(COMPOSE, variables)
    published = re.findall(r'^      - "(\d+):(\d+)"$', filled, re.MULTILINE)
    broker_port, web_port = variables.get("BROKER_PORT", "6650"), variables.get("WEB_PORT", "8080")
    listens = ProxyConfig()
    assert published == [(broker_port, str(listens.port)), (web_port, str(listens.web_port))]
    assert filled.count("ports:") == 1
    assert filled.index("ports:") > filled.index("command: proxy")


def test_a_library_without_symbols_still_works(tmp_path: Path) -> None:
    whole = Path(uvloop_module.__file__)
    cut = tmp_path / whole.name
    shutil.copy(whole, cut)
    program = [sys.executable, str(ROOT / "docker" / "strip_libraries.py"), str(tmp_path)]
    subprocess.run(program, check=True, capture_output=True)
    assert cut.stat().st_size < whole.stat().st_size / 2
    load = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("uvloop.loop", {str(cut)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
async def answer(): return 42
print(module.Loop().run_until_complete(answer()))
"""
    ended = subprocess.run(
        [sys.executable, "-c", load], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "42\n", ended.stderr


def compose_command() -> list[str]:
    """``docker compose`` or the older ``docker-compose``; skips where there is neither, or one that
    is too old for the file."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        asked = subprocess.run(
            [*command, "version", "--short"],
            capture_output=True,
            text=True,
            timeout=CONFIG_TIMEOUT_S,
            check=False,
        )
        if asked.returncode != 0:
            continue
        found = re.search(r"(\d+)\.(\d+)", asked.stdout)
        assert found is not None, asked.stdout
        version = int(found[1]), int(found[2])
        if version < COMPOSE_VERSION_MIN:
            pytest.skip(f"this compose is {asked.stdout.strip()}; the file is for 1.29 and newer")
        return command
    pytest.skip("there is no docker client with compose here")


def test_docker_understands_the_compose_file() -> None:
    checked = subprocess.run(
        [*compose_command(), "--file", str(ROOT / "docker-compose.yml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=CONFIG_TIMEOUT_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
