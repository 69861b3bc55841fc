"""Proves that the compose file of several clusters says only what Geminga's commands and settings
know, and that its clusters are registered at each other.

What needs an engine is proven in ``tests/containers``.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.test_compose import CONFIG_TIMEOUT_S, compose_command, with_variables

from geminga_cli.embedded_zookeeper.settings import ZooKeeperPartSettings
from geminga_cli.main import COMMANDS
from geminga_cli.supervisor.settings import ClusterSettings
from geminga_server.config import settings_of

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = (ROOT / "docker-compose.geo.yml").read_text()
SERVICES = dict(
    re.findall(
        r"^  ([a-z0-9-]+):\n(.*?)(?=^  \S|^\S|\Z)",
        COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0],
        re.MULTILINE | re.DOTALL,
    )
)
CLUSTERS = ("beijing", "shanghai", "guiyang")
PROFILES = {"configuration-store": "shared", "xian": "aggregation", "introduce-xian": "aggregation"}
STORE = "zk:configuration-store:2181"
# In the place of the command: it knows two clusters already, and writes down what it is told.
PRETENDED = """#!/bin/sh
echo "$@" >> told
case "$*" in *"create pulsar-shanghai"*) exit 1;; esac
"""
TOLD = re.compile(
    r"admin --admin-url http://(\w+):8080 clusters (create|update) pulsar-(\w+) "
    r"--url http://(\w+):8080 --broker-url pulsar://(\w+):6650"
)


def test_every_variable_is_a_setting_and_every_command_exists() -> None:
    known = {
        setting.variable(part)
        for part, config in (("cluster", ClusterSettings), ("zookeeper", ZooKeeperPartSettings))
        for setting in settings_of(config).values()
    }
    named = set(re.findall(r"\bGEMINGA_[A-Z]+_[A-Z_]+\b", COMPOSE))
    assert named
    assert named - known == set()
    commands = re.findall(r'^ +command: \["(\S+)", "up"\]$', COMPOSE, re.MULTILINE)
    commands += re.findall(r"^ +command: (\w+)$", COMPOSE, re.MULTILINE)
    assert sorted(commands) == ["cluster", "zookeeper"]
    assert set(commands) <= COMMANDS.keys()


def test_what_not_all_need_waits_for_its_profile() -> None:
    profiles = {
        name: found[1]
        for name, text in SERVICES.items()
        if (found := re.search(r'^    profiles: \["(\w+)"\]$', text, re.MULTILINE))
    }
    assert profiles == PROFILES
    assert SERVICES.keys() - profiles.keys() == {*CLUSTERS, "introduce"}
    assert [name for name, text in SERVICES.items() if "build:" in text] == ["beijing"]


def test_each_cluster_has_a_name_ports_and_a_volume_of_its_own() -> None:
    settings = ClusterSettings()
    published: set[str] = set()
    for name in (*CLUSTERS, "xian"):
        text = SERVICES[name]
        assert f"GEMINGA_CLUSTER_CLUSTER: pulsar-{name}\n" in text
        assert f"GEMINGA_CLUSTER_ADVERTISED_ADDRESS: {name}\n" in text
        assert f"- {name}:/pulsar/data\n" in text
        ports = dict(re.findall(r'- "(\d+):(\d+)"', text))
        assert list(ports.values()) == [str(settings.broker_port), str(settings.web_port)]
        published |= ports.keys()
        first, second = ports
        assert f"pulsar://localhost:{first}" in COMPOSE
        assert f"http://localhost:{second}" in COMPOSE
    assert len(published) == 8


@pytest.mark.parametrize("store", ["", STORE])
def test_a_configuration_store_is_a_variable_and_that_of_the_profile_is_one(store: str) -> None:
    told = with_variables(COMPOSE, {"CONFIGURATION_STORE": store})
    (value,) = re.findall(r"GEMINGA_CLUSTER_CONFIGURATION_STORE: ?(.*)$", told, re.MULTILINE)
    assert value == store
    assert f"CONFIGURATION_STORE={STORE} COMPOSE_PROFILES=shared" in COMPOSE
    host, port = STORE.removeprefix("zk:").split(":")
    assert "GEMINGA_ZOOKEEPER_BIND_ADDRESS: 0.0.0.0\n" in SERVICES[host]
    assert port == str(ZooKeeperPartSettings().port)


@pytest.mark.parametrize("service", ["introduce", "introduce-xian"])
def test_each_cluster_is_registered_at_each_other(service: str, tmp_path: Path) -> None:
    program = tmp_path / "geminga"
    program.write_text(PRETENDED)
    program.chmod(0o755)
    found = re.search(r"^    - \|\n((?:      .*\n)+)", COMPOSE, re.MULTILINE)
    assert found is not None
    names = dict(re.findall(r"^      (NEW|ALL): (.*)$", SERVICES[service], re.MULTILINE))
    subprocess.run(
        ["/bin/sh", "-euc", found[1].replace("$$", "$")],
        cwd=tmp_path,
        env=names | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        timeout=CONFIG_TIMEOUT_S,
    )
    told = TOLD.findall((tmp_path / "told").read_text())
    assert all(len({name, url, broker_url}) == 1 for _, _, name, url, broker_url in told)
    pairs = {(at, name) for at in CLUSTERS for name in CLUSTERS if at != name}
    if service == "introduce-xian":
        pairs = {pair for each in CLUSTERS for pair in ((each, "xian"), ("xian", each))}
    assert {(at, name) for at, _, name, *_ in told} == pairs
    # Where one is known its record is written again.
    updated = {name for _, verb, name, *_ in told if verb == "update"}
    assert updated == {"shanghai"}


@pytest.mark.parametrize("key", ["name", "start_interval", "version"])
def test_the_file_has_no_key_that_compose_1_29_refuses_or_a_new_one_warns_of(key: str) -> None:
    assert not re.search(rf"^ *{key}:", COMPOSE, re.MULTILINE)


def test_docker_understands_the_file() -> None:
    words = ("--file", str(ROOT / "docker-compose.geo.yml"))
    profiles = (word for each in sorted({*PROFILES.values()}) for word in ("--profile", each))
    checked = subprocess.run(
        [*compose_command(), *words, *profiles, "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=CONFIG_TIMEOUT_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
