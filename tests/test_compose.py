"""Proves that the image and the compose file say only what Geminga's commands and settings know,
and that the dashboards ask for metrics which its parts show.

What is typed into YAML is not checked until a container starts; a wrong variable not even
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
from tests.monitoring_files import FOLDER as MONITORING
from tests.monitoring_files import RECORDED, dashboards, expressions, missing_metrics

from geminga_bookie.config import BookieConfig
from geminga_broker.config import BrokerConfig
from geminga_cli.commands.standalone import parse
from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.main import COMMANDS
from geminga_cli.supervisor.settings import StandaloneSettings
from geminga_functions.config import FunctionsWorkerConfig
from geminga_proxy.config import ProxyConfig
from geminga_server.config import settings_of

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SPARK_DOCKERFILE = (ROOT / "docker" / "spark.Dockerfile").read_text()
# Each service by its name, as it stands in the file.
SERVICES = dict(
    re.findall(
        r"^  ([a-z0-9-]+):\n(.*?)(?=^  \S|^\S|\Z)",
        COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0],
        re.MULTILINE | re.DOTALL,
    )
)
# Those that `docker compose up` leaves out.
PROFILES = {"prometheus": "monitoring", "grafana": "monitoring", "spark": "spark"}
CONFIGS: dict[str, type[Any]] = {
    "bookie": BookieConfig,
    "broker": BrokerConfig,
    "functions-worker": FunctionsWorkerConfig,
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
    jobs = set(re.findall(r"\bGEMINGA_[A-Z_]+\b", SERVICES["spark"]))
    assert named - jobs - known_variables() == set()
    # What a job of Spark's reads instead of its options.
    options = (ROOT / "spark_jobs" / "pyspark_geminga" / "jobs" / "_session.py").read_text()
    assert jobs == set(re.findall(r'_VARIABLE = "(GEMINGA_[A-Z_]+)"', options))


def test_every_command_exists() -> None:
    commands = re.findall(r"^ +command: (\S+)$", COMPOSE, re.MULTILINE)
    commands += re.findall(r"^ +command:\n +- (\S+)$", COMPOSE, re.MULTILINE)
    assert sorted(commands) == [
        *("bookie", "broker", "functions-worker", "initialize-cluster-metadata", "proxy"),
        "zookeeper",
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


@pytest.mark.parametrize("dockerfile", [DOCKERFILE, SPARK_DOCKERFILE], ids=["servers", "spark"])
def test_an_image_gets_every_folder_that_the_wheel_is_built_from(dockerfile: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = set(re.findall(r"^COPY (\w+) \w+$", dockerfile, re.MULTILINE))
    assert copied == {package.partition("/")[0] for package in packages}


def test_the_image_asks_a_part_for_its_health_by_a_command() -> None:
    (words,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, command, *_ = json.loads(words)
    assert program == "geminga"
    assert command in COMMANDS


def test_no_container_gets_a_volume_without_a_name() -> None:
    assert "VOLUME" not in DOCKERFILE


def test_an_image_is_built_once_and_every_part_outlives_a_reboot() -> None:
    assert [name for name, text in SERVICES.items() if "build:" in text] == ["zookeeper", "spark"]
    assert re.findall(r"^  restart: (.*)$", COMPOSE, re.MULTILINE) == ["unless-stopped"]
    restarts = {
        name: found[1]
        for name, text in SERVICES.items()
        if (found := re.search(r"^    restart: (.*)$", text, re.MULTILINE))
    }
    # `initialize` does something once, and ends.
    monitoring = dict.fromkeys(("prometheus", "grafana"), "unless-stopped")
    assert restarts == {"initialize": '"no"', **monitoring}


def test_only_what_no_client_needs_waits_for_its_profile() -> None:
    profiles = {
        name: found[1]
        for name, text in SERVICES.items()
        if (found := re.search(r'^    profiles: \["(\w+)"\]$', text, re.MULTILINE))
    }
    assert profiles == PROFILES


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
    filled = with_variables(SERVICES["proxy"], variables)
    published = re.findall(r'^      - "(\d+):(\d+)"$', filled, re.MULTILINE)
    broker_port, web_port = variables.get("BROKER_PORT", "6650"), variables.get("WEB_PORT", "8080")
    listens = ProxyConfig()
    assert published == [(broker_port, str(listens.port)), (web_port, str(listens.web_port))]
    publishing = {name for name, text in SERVICES.items() if "ports:" in text}
    assert publishing - PROFILES.keys() == {"proxy"}
    # The monitoring authenticates no user: only this machine reaches it.
    for name in publishing & PROFILES.keys():
        assert re.search(r'ports:\n      - "127\.0\.0\.1:\$\{\w+:-\d+\}:\d+"\s*\Z', SERVICES[name])


def test_prometheus_asks_every_part_for_its_metrics() -> None:
    config = (MONITORING / "prometheus" / "prometheus.yml").read_text()
    targets = {
        target
        for line in re.findall(r"targets: \[(.*)\]", config)
        for target in re.findall(r'"([^"]+)"', line)
    }
    parts = SERVICES.keys() - PROFILES.keys() - {"initialize"}
    # Where bookies and ZooKeepers have no other web port, their metrics have one.
    ports = {
        "broker": BrokerConfig().web_port,
        "functions": FunctionsWorkerConfig().worker_port,
        "proxy": ProxyConfig().web_port,
    }
    assert targets == {f"{part}:{ports.get(part.partition('-')[0], 8000)}" for part in parts}
    assert config.count("metrics_path: /metrics/") == config.count("job_name:")


def test_grafana_finds_the_dashboards_and_prometheus_where_the_compose_file_puts_them() -> None:
    mounts = dict(re.findall(r"- \./docker/monitoring/(\S+?):(/\S+):ro", COMPOSE))
    assert all((MONITORING / source).is_dir() for source in mounts)
    provisioning = MONITORING / "grafana" / "provisioning"
    (provider,) = (provisioning / "dashboards").iterdir()
    assert f"path: {mounts['grafana/dashboards']}\n" in provider.read_text()
    home = re.search(r"HOME_DASHBOARD_PATH: (\S+)", COMPOSE)
    assert home is not None
    at = Path(home[1])
    assert (str(at.parent), at.name in dashboards()) == (mounts["grafana/dashboards"], True)
    (source,) = (provisioning / "datasources").iterdir()
    assert "url: http://prometheus:9090\n" in source.read_text()
    uid = re.search(r"uid: (\w+)", source.read_text())
    assert uid is not None
    panels = [panel for each in dashboards().values() for panel in each["panels"]]
    assert {panel["datasource"]["uid"] for panel in panels} == {uid[1]}


def test_dashboards_and_panels_can_be_told_apart_and_do_not_overlap() -> None:
    boards = dashboards().values()
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == 4
    for board in boards:
        places = [panel["gridPos"] for panel in board["panels"]]
        assert max(place["x"] + place["w"] for place in places) <= 24
        cells = [
            (column, line)
            for place in places
            for column in range(place["x"], place["x"] + place["w"])
            for line in range(place["y"], place["y"] + place["h"])
        ]
        assert len(cells) == len(set(cells)), board["title"]
        for told in ("id", "title"):
            assert len({panel[told] for panel in board["panels"]}) == len(places)


def test_every_metric_of_a_dashboard_or_an_alert_is_one_that_a_part_shows() -> None:
    names = {name for recorded in RECORDED.values() for name in recorded}
    asked = dict(expressions())
    assert len(asked) > 60
    missing = {
        where: lacks for where, each in asked.items() if (lacks := missing_metrics(each, names))
    }
    assert missing == {}


@pytest.mark.parametrize(
    ("expression", "missing"),
    [
        ("sum by (job) (rate(lost_total[1m])) > 0", {"lost_total"}),
        ('up{lost="1"} == 0 or vector(0)', set[str]()),
        ('{__name__=~"lost_.+_usage"} > 85', {"lost_.+_usage"}),
        ("max(kept / on (lost) lost)", {"lost"}),
    ],
)
def test_metrics_are_found_in_expressions(expression: str, missing: set[str]) -> None:
    assert missing_metrics(expression, {"kept"}) == missing


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
        [
            *(*compose_command(), "--file", str(ROOT / "docker-compose.yml")),
            *(word for profile in sorted({*PROFILES.values()}) for word in ("--profile", profile)),
            *("config", "--quiet"),
        ],
        capture_output=True,
        text=True,
        timeout=CONFIG_TIMEOUT_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
