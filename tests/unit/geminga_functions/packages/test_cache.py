"""Proves that a package is fetched once for all its instances, and leaves with the last one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from geminga_functions.errors import PackageDamaged, PackageError, PackageRefused
from geminga_functions.packages.cache import PackageCache
from geminga_functions.packages.environments import Environments
from geminga_protocol.functions.functions_pb2 import FunctionMetaData, PackageLocationMetaData

pytestmark = pytest.mark.real_loop


class FakeSource:
    """Packages in memory. ``gate`` holds them up while it is not set."""

    def __init__(self) -> None:
        self.parts = [b"def process", b"(x): ..."]
        self.error: PackageError | None = None
        self.reads = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, path: str) -> AsyncIterator[bytes]:
        assert path == "t/n/f"
        self.reads += 1
        for part in self.parts:
            await self.gate.wait()
            yield part
        if self.error is not None:
            raise self.error


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
async def cache(tmp_path: Path, source: FakeSource) -> AsyncIterator[PackageCache]:
    environments = Environments(tmp_path / "environments", os.environ, 60)
    (tmp_path / "packages" / "left").mkdir(parents=True)
    async with PackageCache(tmp_path / "packages", source.read, environments) as opened:
        assert files(tmp_path) == []
        yield opened


def files(tmp_path: Path) -> list[Path]:
    return [each for each in (tmp_path / "packages").rglob("*") if each.is_file()]


def metadata(path: str = "t/n/f", file_name: str = "f.py") -> FunctionMetaData:
    location = PackageLocationMetaData(packagePath=path, originalFileName=file_name)
    return FunctionMetaData(packageLocation=location)


async def test_instances_share_a_package_until_the_last_one_ends(
    cache: PackageCache, source: FakeSource, tmp_path: Path
) -> None:
    async with cache.use(metadata()) as first:
        async with cache.use(metadata()) as second:
            assert first == second
            assert source.reads == 1
        assert first.package is not None
        assert first.package.name == "f.py"
        assert first.package.read_bytes() == b"def process(x): ..."
        assert first.import_paths == (first.package.parent,)
        assert first.python == Path(sys.executable)
    assert files(tmp_path) == []
    async with cache.use(metadata()):
        assert source.reads == 2


async def test_a_built_in_function_has_no_package(cache: PackageCache, source: FakeSource) -> None:
    for path in ("", "builtin://data-generator"):
        async with cache.use(metadata(path)) as prepared:
            assert prepared.package is None
    assert source.reads == 0


async def test_all_waiting_instances_get_a_failure_and_the_next_instance_tries_anew(
    cache: PackageCache, source: FakeSource, tmp_path: Path
) -> None:
    source.error = PackageDamaged("t/n/f", "half of it")
    source.gate.clear()

    async def use() -> None:
        async with cache.use(metadata()):
            pytest.fail("it was used")

    uses = [asyncio.create_task(use()) for _ in range(3)]
    await asyncio.sleep(0)
    source.gate.set()
    for outcome in await asyncio.gather(*uses, return_exceptions=True):
        assert isinstance(outcome, PackageDamaged)
    assert source.reads == 1
    assert files(tmp_path) == []
    source.error = None
    async with cache.use(metadata()):
        assert source.reads == 2


async def test_an_instance_that_is_stopped_meanwhile_leaves_the_package_to_the_others(
    cache: PackageCache, source: FakeSource, tmp_path: Path
) -> None:
    source.gate.clear()
    has_package = asyncio.Event()

    async def use() -> None:
        async with cache.use(metadata()):
            has_package.set()

    one, two = asyncio.create_task(use()), asyncio.create_task(use())
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    source.gate.set()
    await two
    assert has_package.is_set()
    assert source.reads == 1
    assert files(tmp_path) == []


async def test_the_last_waiting_instance_that_is_stopped_ends_the_preparation(
    cache: PackageCache, source: FakeSource, tmp_path: Path
) -> None:
    source.gate.clear()

    async def use() -> None:
        async with cache.use(metadata()):
            pytest.fail("it was used")

    one = asyncio.create_task(use())
    async with asyncio.timeout(10):
        while not source.reads:  # noqa: ASYNC110 - threads make folders meanwhile
            await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    assert one.cancelled()
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["", "../f.py", "/f.py", "a/f.py"])
async def test_the_file_of_a_package_has_a_plain_name(cache: PackageCache, name: str) -> None:
    with pytest.raises(PackageRefused, match="is no name of a file"):
        async with cache.use(metadata(file_name=name)):
            pytest.fail("it was used")
