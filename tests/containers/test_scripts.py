"""Proves without an engine that the images' scripts run what they are told, and that what the
compose file and the Dockerfile name is there. `make test-containers` tries them in engines."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.containers.cluster import PARTS

from geminga_cli.commands.health import PROBES
from geminga_cli.main import COMMANDS
from geminga_server.config import settings_of

ROOT = Path(__file__).parents[2]
BIN = ROOT / "docker" / "bin"
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
# Services of other programs, which have their profiles.
OTHERS = ("prometheus", "grafana", "spark")
# Words as a shell would be given them, one a line.
TELL = '#!/bin/sh\nprintf "%s\\n" "$(basename "$0")" "$@"\n'
CONFIGS = {
    "bookie": ("geminga_bookie.config", "BookieConfig"),
    "broker": ("geminga_broker.config", "BrokerConfig"),
    "functions-worker": ("geminga_functions.config", "FunctionsWorkerConfig"),
    "proxy": ("geminga_proxy.config", "ProxyConfig"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a container would begin: programs that tell what they were told, and a volume."""
    for name in ("geminga", "bin/pulsar", "setpriv", "chown"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(TELL)
        program.chmod(0o755)
    return tmp_path


def run(
    script: Path, words: Sequence[str], directory: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(script), *words],
        env={**os.environ, "PATH": path, **variables},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def as_user(user: str, directory: Path) -> None:
    """Let the scripts believe that they are run by the user of that id."""
    program = directory / "id"
    program.write_text(f"#!/bin/sh\necho {user}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("pulsar standalone", "geminga standalone"),
        (
            "pulsar standalone -nss -nfw -a host --bookkeeper-port 1",
            "geminga standalone --no-functions-worker --advertised-address host --bookie-port 1",
        ),
        ("pulsar broker --port 1", "geminga broker --port 1"),
        ("pulsar version", "geminga --version"),
        ("pulsar", "geminga --help"),
        ("pulsar-admin topics stats topic1", "geminga admin topics stats topic1"),
        ("pulsar-perf produce topic1", "geminga perf produce topic1"),
        (
            "pulsar-client --url pulsar://host consume topic1 -s consume -n 0 -t Failover",
            "geminga consume --url pulsar://host topic1 -s consume -n 0 -t Failover",
        ),
    ],
)
def test_the_programs_of_pulsars_images_run_ours(words: str, told: str, directory: Path) -> None:
    name, *arguments = words.split()
    assert run(BIN / name, arguments, directory).stdout.split() == told.split()


def test_words_with_spaces_stay_whole(directory: Path) -> None:
    told = run(BIN / "pulsar-client", ["produce", "t", "-m", "two words"], directory).stdout
    assert told.splitlines() == ["geminga", "produce", "t", "-m", "two words"]


def test_a_client_without_a_command_says_how_it_is_used(directory: Path) -> None:
    refused = run(BIN / "pulsar-client", ["--url", "pulsar://host"], directory)
    assert (refused.returncode, "usage" in refused.stdout) == (2, True)
    assert run(BIN / "pulsar-client", ["--help"], directory).returncode == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("standalone --quiet", "geminga standalone --quiet"),
        ("bin/pulsar standalone", "pulsar standalone"),
        ("./bin/pulsar version", "pulsar version"),
        ("", "geminga"),
    ],
)
def test_a_container_runs_what_is_in_bin_as_it_is_given_and_else_geminga(
    words: str, told: str, directory: Path
) -> None:
    as_user("1234", directory)
    ran = run(ROOT / "docker" / "entrypoint.sh", words.split(), directory)
    assert ran.stdout.split() == told.split()


def entrypoint_on(data: Path, directory: Path) -> Path:
    """The entrypoint, for a volume at ``data``."""
    script = directory / "entrypoint.sh"
    text = (ROOT / "docker" / "entrypoint.sh").read_text()
    assert text.count("data=/pulsar/data\n") == 1
    script.write_text(text.replace("data=/pulsar/data\n", f"data={data}\n"))
    script.chmod(0o755)
    return script


def test_root_gives_an_empty_volume_away_and_goes_on_as_another_user(directory: Path) -> None:
    as_user("0", directory)
    data = directory / "volume"
    data.mkdir()
    given = ["chown", "geminga:geminga", str(data)]
    dropped = ["setpriv", "--reuid=geminga", "--regid=geminga", "--init-groups"]
    script = entrypoint_on(data, directory)
    told = run(script, ["standalone"], directory).stdout.splitlines()
    assert told == [*given, *dropped, "geminga", "standalone"]
    (data / "somebody's").write_text("")
    told = run(script, ["bin/pulsar", "standalone"], directory).stdout.splitlines()
    assert told == [*dropped, "bin/pulsar", "standalone"]


def test_a_user_of_the_callers_choice_stays_who_it_is(directory: Path) -> None:
    as_user("1234", directory)
    data = directory / "volume"
    data.mkdir()
    told = run(entrypoint_on(data, directory), ["broker"], directory).stdout.splitlines()
    assert told == ["geminga", "broker"]


def setting_prefix(part: str) -> str:
    return f"GEMINGA_{part.upper().replace('-', '_')}_"


def test_what_the_compose_file_sets_are_settings() -> None:
    variables = set(re.findall(r"^ +(GEMINGA_[A-Z_]+):", COMPOSE, re.MULTILINE))
    for part, (module, name) in CONFIGS.items():
        kind: type[Any] = getattr(import_module(module), name)
        known = {setting.variable(part) for setting in settings_of(kind).values()}
        mine = {each for each in variables if each.startswith(setting_prefix(part))}
        assert mine
        assert mine <= known
        variables -= mine
    variables -= {"GEMINGA_SERVICE_URL", "GEMINGA_ADMIN_URL"}  # of Spark's jobs
    zookeepers = {"GEMINGA_ZOOKEEPER_BIND_ADDRESS", "GEMINGA_ZOOKEEPER_DATA_DIRECTORY"}
    assert variables == zookeepers


def test_the_compose_file_starts_commands_whose_health_can_be_asked() -> None:
    listed = COMPOSE.split("\nservices:\n")[1].split("\nvolumes:\n")[0]
    services = set(re.findall(r"^  ([a-z0-9-]+):$", listed, re.MULTILINE))
    assert services == {*PARTS, "initialize", *OTHERS}
    commands = set(re.findall(r"^ +command: (\S+)$", COMPOSE, re.MULTILINE))
    assert commands == {"zookeeper", "bookie", "broker", "functions-worker", "proxy"}
    assert commands <= PROBES.keys()
    assert commands <= COMMANDS.keys()


def test_the_images_are_made_of_all_the_source() -> None:
    copied = set(re.findall(r"^COPY ([a-z_]+) \1$", DOCKERFILE, re.MULTILINE))
    source = {path.parent.parent.name for path in ROOT.glob("*/*/py.typed")}
    assert source <= copied
    for script in (ROOT / "docker" / "entrypoint.sh", *BIN.iterdir()):
        assert os.access(script, os.X_OK), script
