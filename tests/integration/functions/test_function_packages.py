"""Proves that packages of functions survive in a cluster as they were, and go without a trace."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest

import geminga
from geminga_functions.errors import PackageDamaged, PackageNotFound
from geminga_functions.packages.store import PART_BYTES, PackageStore, StoredPackage
from geminga_server.http.rest_calls import HttpCalls

NAMESPACE = "public/functions"
PACKAGE_BYTES_MAX = 8 * PART_BYTES


@pytest.fixture
async def store(standalone: StandaloneProcess) -> AsyncIterator[PackageStore]:
    async with geminga.connect(standalone.service_url) as client:
        yield PackageStore(
            client, HttpCalls(), standalone.web_service_url, NAMESPACE, PACKAGE_BYTES_MAX
        )


async def in_chunks(content: bytes, chunk_bytes: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), chunk_bytes):
        yield content[start : start + chunk_bytes]


async def read(store: PackageStore, path: str) -> bytes:
    return b"".join([part async for part in store.read(path)])


def is_there(standalone: StandaloneProcess, topic: str) -> bool:
    return topic in rest(standalone.web_service_url, "GET", f"/admin/v2/persistent/{NAMESPACE}")[1]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, 5 * PART_BYTES + 17])
async def test_a_package_is_read_as_it_was_stored(
    store: PackageStore, standalone: StandaloneProcess, size: int
) -> None:
    content = random.Random(size).randbytes(size)
    path = f"public/default/f/{size}-f.zip"
    stored = await store.store(path, "f.zip", in_chunks(content, 100_000))
    assert stored == StoredPackage(path, "f.zip", size, stored.sha256)
    assert await read(store, path) == content
    assert await read(store, path) == content
    assert is_there(standalone, store.topic(path))
    await store.remove(path)
    await store.remove(path)
    assert not is_there(standalone, store.topic(path))
    with pytest.raises(PackageNotFound):
        await read(store, path)
    assert not is_there(standalone, store.topic(path))


async def test_a_package_that_is_stored_again_is_replaced(store: PackageStore) -> None:
    await store.store("public/default/f", "f.py", in_chunks(b"old", 1))
    await store.store("public/default/f", "f.py", in_chunks(b"new", 1))
    assert await read(store, "public/default/f") == b"new"
    await store.remove("public/default/f")


async def test_an_upload_that_breaks_off_leaves_nothing(
    store: PackageStore, standalone: StandaloneProcess
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 2 * PART_BYTES
        raise ConnectionResetError("the uploader has gone")

    with pytest.raises(ConnectionResetError):
        await store.store("public/default/f", "f.py", broken())
    assert not is_there(standalone, store.topic("public/default/f"))


async def test_a_package_without_its_end_is_never_used(
    store: PackageStore, standalone: StandaloneProcess
) -> None:
    topic = store.topic("public/default/half")
    async with (
        geminga.connect(standalone.service_url) as client,
        client.producer(topic, initial_subscription="package") as producer,
    ):
        await producer.send(b"a part")
    with pytest.raises(PackageDamaged, match="its last message is missing"):
        await read(store, "public/default/half")
    await store.remove("public/default/half")


async def test_a_package_with_other_parts_than_were_stored_is_never_used(
    store: PackageStore, standalone: StandaloneProcess
) -> None:
    topic = store.topic("public/default/other")
    said = {"file": "f.py", "parts": "1", "size": "6", "sha256": "0" * 64}
    async with (
        geminga.connect(standalone.service_url) as client,
        client.producer(topic, initial_subscription="package") as producer,
    ):
        await producer.send(b"a part")
        await producer.send(b"", properties=said)
    with pytest.raises(PackageDamaged, match="not those that were stored"):
        await read(store, "public/default/other")
    await store.remove("public/default/other")
