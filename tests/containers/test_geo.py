"""Proves that the clusters of `docker-compose.geo.yml` replicate to each other, with a
configuration store and without one, for clients in their network and for those on the machine."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import pytest
from tests.containers.cluster import client_outside, wait_until_healthy
from tests.containers.engine import Engine
from tests.integration.waiting import eventually

CLUSTERS = {"beijing": 6650, "shanghai": 6750, "guiyang": 6850}
NAMES = ",".join(f"pulsar-{name}" for name in CLUSTERS)
FILE = ("--file", "docker-compose.geo.yml")
PROFILES = ("--profile", "shared", "--profile", "aggregation")
STORE = {"CONFIGURATION_STORE": "zk:configuration-store:2181", "COMPOSE_PROFILES": "shared"}
TOPIC = "persistent://my-tenant/my-namespace/orders"


class GeoClusters:
    """The project of the compose file, with or without a store."""

    def __init__(self, engine: Engine, variables: dict[str, str]) -> None:
        self._engine = engine
        self._variables = variables | engine.build_variables

    def compose(self, *words: str) -> str:
        return self._engine.run(
            *self._engine.release.compose, *FILE, *words, variables=self._variables
        )

    def up(self) -> None:
        self.compose("up", "--detach", "--build")
        for name in CLUSTERS:
            container = self.compose("ps", "--all", "--quiet", name).strip()
            wait_until_healthy(self._engine, container)
        for name in CLUSTERS:  # they are introduced once all are healthy
            eventually(partial(self.known_at, name), NAMES.split(",").__eq__)

    def known_at(self, name: str) -> list[str]:
        known = self.admin(name, "clusters", "list").split()
        return [each for each in NAMES.split(",") if each in known]

    def admin(self, name: str, *words: str) -> str:
        return self.compose("exec", "-T", name, "geminga", "admin", *words)


@pytest.fixture(params=[{}, STORE], ids=["each-its-own", "shared-store"])
def clusters(request: pytest.FixtureRequest, engine: Engine) -> Generator[GeoClusters]:
    """All of them, up; taken down in the end."""
    composed = GeoClusters(engine, request.param)
    composed.up()
    yield composed
    composed.compose(*PROFILES, "down", "--volumes")


def test_the_clusters_of_the_file_replicate_to_each_other(
    engine: Engine, clusters: GeoClusters, request: pytest.FixtureRequest
) -> None:
    is_shared = "shared-store" in request.node.name
    for name in list(CLUSTERS)[: 1 if is_shared else None]:
        clusters.admin(name, "tenants", "create", "my-tenant", "--allowed-clusters", NAMES)
        clusters.admin(name, "namespaces", "create", "my-tenant/my-namespace")
        words = ("namespaces", "set-clusters", "my-tenant/my-namespace", "--clusters", NAMES)
        clusters.admin(name, *words)
    urls = {name: f"localhost:{port}" for name, port in CLUSTERS.items()}
    for name in ("shanghai", "guiyang"):  # which makes the subscription
        client_outside(engine, urls[name], "send", TOPIC, 0)
    client_outside(engine, urls["beijing"], "send", TOPIC, 20)
    for name in CLUSTERS:
        received = client_outside(engine, urls[name], "receive", TOPIC, 20)
        assert received == [str(number) for number in range(20)]
