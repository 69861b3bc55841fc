"""Engines, the images in them, and the cluster that the compose file starts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.containers.cluster import ComposedCluster
from tests.containers.debian import DebianMissing
from tests.containers.engine import BOOKWORM, TRIXIE, Engine, Release

TOOLS = ("ip", "nsenter", "unshare", "setpriv", "chroot", "openssl", "dpkg-deb", "tar")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs an engine is run by `make test-containers`, the rest with the unit tests."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "engine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session", params=[TRIXIE, BOOKWORM], ids=lambda release: release.name)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Engine]:
    """An engine of today, then the oldest one that the compose file is for."""
    release: Release = request.param
    # Not by the way, where all tests are run: it takes a quarter of an hour and 12 GB of the cache.
    if "containers" not in request.config.option.markexpr:
        pytest.skip("make test-containers runs this")
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("an engine needs root on Linux")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"an engine needs {', '.join(missing)}")
    caches = Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache")
    engine = Engine(release, caches / "geminga" / "containers", tmp_path_factory.mktemp("engine"))
    with ExitStack() as stack:
        try:
            stack.enter_context(engine)
        except DebianMissing as error:
            pytest.skip(str(error))
        yield engine


@pytest.fixture(scope="session")
def images(engine: Engine) -> dict[str, str]:
    """Both images: what they are called, by the target that they are built for."""
    arguments = engine.build_arguments()
    engine.run("docker", "build", *arguments, "--target", "slim", "--tag", "geminga-slim", ".")
    engine.run("docker", "build", *arguments, "--tag", "geminga", ".")
    return {"slim": "geminga-slim", "": "geminga"}


@pytest.fixture
def cluster(engine: Engine) -> Generator[ComposedCluster]:
    """The cluster of the compose file, which a test brings up; taken down in the end."""
    composed = ComposedCluster(engine)
    yield composed
    composed.down()
