"""Proves that the compose file's cluster serves both sides of its network, and comes back."""

from __future__ import annotations

import os
import signal

from tests.containers.cluster import BROKERS, PARTS, WORKERS, ComposedCluster
from tests.containers.engine import Engine

GREETINGS = [f"hello {number}" for number in range(10)]
KEEPING = [each for each in PARTS if each not in (*BROKERS, "proxy")]
VOLUMES = {f"checkout_{part}" for part in KEEPING}
VOLUMES_OF_PROFILES = {"checkout_prometheus", "checkout_spark"}  # which Compose 1.29 makes too
BROKER_URLS = {f"pulsar://{broker}:6650" for broker in BROKERS}


def test_a_fresh_checkout_becomes_a_cluster_for_both_sides_of_its_network(
    engine: Engine, cluster: ComposedCluster
) -> None:
    engine.try_to("docker", "image", "rm", "--force", "geminga")
    cluster.up()
    assert cluster.run_readme_example() == GREETINGS
    assert cluster.living_brokers() == [f"{broker}:8080" for broker in BROKERS]
    assert cluster.living_workers() == [f"{worker}:6750" for worker in WORKERS]
    # By the proxy, and straight to the brokers, whichever of them is asked.
    assert cluster.run_inside("pulsar://proxy:6650", "http://proxy:8080") in BROKER_URLS
    for broker in BROKERS:
        told = cluster.run_inside(f"pulsar://{broker}:6650", f"http://{broker}:8080")
        assert told in BROKER_URLS
    # One image for all parts, and no volume but those that the file names.
    containers = map(cluster.container, (*PARTS, "initialize"))
    images = {engine.inspect("container", container)["Image"] for container in containers}
    assert images == {engine.inspect("image", "geminga")["Id"]}
    assert set(engine.words("docker", "volume", "ls", "-q")) - VOLUMES_OF_PROFILES == VOLUMES


def test_other_ports_of_the_machine_are_told_to_its_clients(cluster: ComposedCluster) -> None:
    cluster.up(BROKER_PORT=7650, WEB_PORT=9080)
    assert cluster.run_readme_example() == GREETINGS
    assert cluster.living_brokers() == [f"{broker}:8080" for broker in BROKERS]


def test_the_cluster_is_back_with_its_messages_when_the_machine_is(
    engine: Engine, cluster: ComposedCluster
) -> None:
    cluster.up()
    cluster.outside("send", "kept", 100)
    engine.stop()
    engine.start()
    cluster.wait_until_healthy()
    assert cluster.outside("receive", "kept", 100) == [str(number) for number in range(100)]
    # What had only to be done once was not done again.
    state = engine.inspect("container", cluster.container("initialize"))["State"]
    assert (state["Status"], state["ExitCode"]) == ("exited", 0)


def test_each_part_that_is_killed_comes_back(engine: Engine, cluster: ComposedCluster) -> None:
    cluster.up()
    for part in PARTS:
        cluster.outside("send", part, 10)
        container = cluster.container(part)
        os.kill(engine.inspect("container", container)["State"]["Pid"], signal.SIGKILL)
        assert cluster.outside("receive", part, 10) == [str(number) for number in range(10)]
        assert engine.inspect("container", container)["RestartCount"] == 1
