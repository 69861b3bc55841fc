"""Proves what the images are: how large, what is in them and what is not, and that a standalone
runs in one of them."""

from __future__ import annotations

import logging
from collections.abc import Generator

import pytest
from tests.containers.cluster import client_outside, run_readme_example, wait_until_healthy
from tests.containers.engine import Engine

log = logging.getLogger(__name__)

# Unpacked, with the image that they are built on, in millions of bytes as engines tell them.
MEGABYTES_MAX = {"": 330, "slim": 170}


@pytest.fixture
def folder(engine: Engine) -> Generator[str]:
    """A folder that is not there yet, on the disk that the engine keeps from run to run."""
    path = "/engine/folder"
    engine.run("rm", "-rf", path)  # of a run that was killed
    yield path
    engine.run("rm", "-rf", path)


@pytest.mark.parametrize("target", MEGABYTES_MAX)
def test_an_image_is_small(target: str, engine: Engine, images: dict[str, str]) -> None:
    size = engine.inspect("image", images[target])["Size"] / 1e6
    log.info("%s on %s: %.1f MB unpacked", images[target], engine.release.name, size)
    assert size <= MEGABYTES_MAX[target]


@pytest.mark.parametrize("target", MEGABYTES_MAX)
def test_the_index_that_an_image_was_built_with_is_not_in_it(
    target: str, engine: Engine, images: dict[str, str]
) -> None:
    # The build had no other index, for its network has no way out; the engine keeps its layers for
    # as long as the arguments, which are the index's URL and certificate, are the same.
    image = images[target]
    history = engine.run("docker", "history", "--no-trunc", image)
    about = engine.run("docker", "image", "inspect", image)
    search = "grep -rIl packages.test / --exclude-dir=proc --exclude-dir=sys || true"
    files = engine.run("docker", "run", "--rm", "--entrypoint", "sh", image, "-c", search)
    assert "packages.test" not in history + about + files
    assert "BEGIN CERTIFICATE" not in history + about


def test_the_slim_image_has_every_command_and_no_java(
    engine: Engine, images: dict[str, str]
) -> None:
    told = engine.run("docker", "run", "--rm", images["slim"])
    assert "autorecovery" in told
    engine.run("docker", "run", "--rm", images["slim"], "broker", "--help")
    search = ("--entrypoint", "find", images["slim"], "/opt", "-name", "libjvm.so")
    assert engine.run("docker", "run", "--rm", *search) == ""
    search = ("--entrypoint", "find", images[""], "/opt", "-name", "libjvm.so")
    assert engine.run("docker", "run", "--rm", *search) != ""
    refused = engine.try_to("docker", "run", "--rm", images["slim"], "standalone")
    assert refused.returncode == 2
    assert "no Java 17 or newer" in refused.stderr


def start_standalone(engine: Engine, *options: str) -> str:
    """A healthy container of a standalone; its id."""
    container = engine.run("docker", "run", "--detach", *options).strip()
    wait_until_healthy(engine, container)
    return container


def test_a_standalone_keeps_its_messages_in_the_volume_it_is_given(
    engine: Engine, images: dict[str, str]
) -> None:
    words = ("-p", "6650:6650", "-p", "8080:8080", "-v", "geminga:/pulsar/data", images[""])
    container = start_standalone(engine, *words)
    assert run_readme_example(engine, 6650) == [f"hello {number}" for number in range(10)]
    client_outside(engine, "localhost:6650", "send", "kept", 10)
    engine.run("docker", "stop", container)
    assert engine.inspect("container", container)["State"]["ExitCode"] == 0
    engine.run("docker", "rm", container)

    container = start_standalone(engine, *words)
    kept = client_outside(engine, "localhost:6650", "receive", "kept", 10)
    assert kept == [str(number) for number in range(10)]
    engine.run("docker", "rm", "--force", container)
    assert engine.words("docker", "volume", "ls", "-q") == ["geminga"]
    engine.run("docker", "volume", "rm", "geminga")


def test_a_standalone_without_a_volume_leaves_none_behind_and_may_have_another_port(
    engine: Engine, images: dict[str, str]
) -> None:
    options = ("-p", "7650:7650", images[""], "standalone", "--broker-port", "7650")
    container = start_standalone(engine, *options)
    assert run_readme_example(engine, 7650) == [f"hello {number}" for number in range(10)]
    engine.run("docker", "rm", "--force", container)
    assert engine.words("docker", "volume", "ls", "-q") == []


def test_the_commands_of_pulsars_images_work_on_a_folder_of_the_machine(
    engine: Engine, images: dict[str, str], folder: str
) -> None:
    """Walk-through 1.3: the folder is made by the engine, and belongs to root."""
    mount = ("-v", f"{folder}:/pulsar/data")
    container = start_standalone(engine, *mount, images[""], "bin/pulsar", "standalone")

    def inside(*words: str) -> str:
        return engine.run("docker", "exec", container, *words)

    sent = ("./bin/pulsar-client", "produce", "topic1", "-m", "hello")
    inside("./bin/pulsar-admin", "topics", "create", "persistent://public/default/topic1")
    inside("./bin/pulsar-admin", "topics", "create-subscription", "topic1", "-s", "sub")
    inside(*sent)
    consumed = ("--url", "pulsar://localhost:6650", "consume", "topic1", "-s", "sub", "-n", "1")
    assert "hello" in inside("./bin/pulsar-client", *consumed)
    assert "sub" in inside("./bin/pulsar-admin", "topics", "stats", "topic1")
    assert inside("stat", "-c", "%u", "/pulsar/data").strip() == "10000"
    assert inside("stat", "-c", "%u", "/proc/1").strip() == "10000"
    engine.run("docker", "rm", "--force", container)

    # A folder with something in it is left to whose it is; with --user no step is root's.
    refused = engine.try_to(
        "docker", "run", "--rm", "--user", "1234", *mount, images[""], "standalone"
    )
    assert refused.returncode == 2
    owned = ("--entrypoint", "chown", images[""], "-R", "1234", "/pulsar/data")
    engine.run("docker", "run", "--rm", *mount, *owned)
    container = start_standalone(engine, "--user", "1234", *mount, images[""], "standalone")
    assert inside("stat", "-c", "%u", "/proc/1").strip() == "1234"
    engine.run("docker", "rm", "--force", container)
