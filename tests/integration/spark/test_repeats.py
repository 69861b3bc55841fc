"""Proves, without Spark, that brokers store each row of a task once whatever its attempts did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest

from geminga import Client, Opening, Reader
from pyspark_geminga.access import Access
from pyspark_geminga.rest import AdminClient
from pyspark_geminga.sink.deduplication import DeduplicationCheck
from pyspark_geminga.sink.errors import EpochOutOfOrder, NotDeduplicated
from pyspark_geminga.sink.options import Cut, SinkOptions
from pyspark_geminga.sink.rows import Rows
from pyspark_geminga.sink.task_writer import Identity, TaskWriter, Written

ROWS = [b"%d" % number for number in range(100)]


@pytest.fixture
async def client(standalone: StandaloneProcess) -> AsyncGenerator[Client]:
    async with access_of(standalone).connect() as opened:
        yield opened


def access_of(standalone: StandaloneProcess) -> Access:
    return Access.of({"service.url": standalone.service_url, "admin.url": standalone.web_url})


class Task:
    """A task of a query that writes to a topic: each of its attempts begins with the first row."""

    def __init__(self, client: Client, standalone: StandaloneProcess, topic: str) -> None:
        access = access_of(standalone)
        self.client = client
        self.options = SinkOptions(access=access, topic=topic, cut=Cut(rows_max=7))
        self.admin = AdminClient(access)
        self.check = DeduplicationCheck(self.admin)

    def writer(self, epoch: int) -> TaskWriter:
        identity = Identity(0, "spark-query-0", epoch)
        return TaskWriter(self.client, self.options, None, identity, partitions=0, check=self.check)

    async def attempt(self, epoch: int, rows: int = len(ROWS)) -> Written:
        writer = self.writer(epoch)
        try:
            await writer.add(Rows(ROWS[:rows], [b""] * rows))
            return await writer.finish()
        finally:
            await writer.close()

    def reader(self) -> Opening[Reader[bytes]]:
        assert self.options.topic is not None
        return self.client.reader(self.options.topic)

    async def stored(self) -> list[bytes]:
        async with self.reader() as reader:
            found: list[bytes] = []
            while await reader.has_message_available():
                found.append((await reader.read()).data)
            return found


@pytest.fixture
async def task(
    client: Client, standalone: StandaloneProcess, geminga_namespace: str
) -> AsyncGenerator[Task]:
    """Its topic deduplicates."""
    path = f"/admin/v2/namespaces/{geminga_namespace}/deduplication"
    assert rest(standalone.web_url, "POST", path, body=True)[0] == 204
    made = Task(client, standalone, f"persistent://{geminga_namespace}/rows")
    yield made
    made.admin.close()


async def test_a_repeat_stores_what_is_missing_even_with_other_limits(task: Task) -> None:
    assert (await task.attempt(1, rows=52)).repeated_rows == 0
    task.options = replace(task.options, cut=Cut(rows_max=10))
    assert (await task.attempt(1)).repeated_rows == 52
    assert (await task.attempt(1)).repeated_rows == 100
    assert await task.stored() == ROWS
    assert (await task.attempt(2)).repeated_rows == 0
    assert await task.stored() == ROWS + ROWS
    with pytest.raises(EpochOutOfOrder):
        await task.attempt(1)


@pytest.mark.parametrize("finishes", [False, True])
async def test_an_attempt_waits_until_the_one_before_it_has_gone(
    task: Task,
    finishes: bool,  # noqa: FBT001
) -> None:
    zombie = task.writer(1)
    await zombie.add(Rows(ROWS[:30], [b""] * 30))  # of which an entry is not full yet
    second = asyncio.ensure_future(task.attempt(1))
    async with task.reader() as reader:
        await reader.read()
    assert not second.done()
    if finishes:  # as with speculative execution, where both attempts are well
        await zombie.add(Rows(ROWS[30:], [b""] * 70))
        await zombie.finish()
    assert not second.done()
    await zombie.close()
    assert (await second).repeated_rows == (100 if finishes else 28)
    assert await task.stored() == ROWS


async def test_a_topic_that_stores_repeats_is_refused_also_when_it_is_switched_off(
    task: Task, standalone: StandaloneProcess, geminga_namespace: str
) -> None:
    await task.attempt(1)
    path = f"/admin/v2/namespaces/{geminga_namespace}/deduplication"
    assert rest(standalone.web_url, "POST", path, body=False)[0] == 204
    # What was asked a moment ago is not asked again; another process has asked nothing yet.
    assert (await task.attempt(2)).repeated_rows == 0
    task.check = DeduplicationCheck(task.admin)
    with pytest.raises(NotDeduplicated, match="says 'Disabled'"):
        await task.attempt(3)
    assert len(await task.stored()) == 200
