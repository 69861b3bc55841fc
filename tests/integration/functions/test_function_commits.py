"""Proves that a function which keeps state gives each result once, and changes its state once,
though its instances are killed, in processes, at brokers that deduplicate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.processes.function_instances import TIMEOUT_S, Functions
from tests.integration.rest import rest

import geminga
from geminga_functions.instance.messages import Started
from geminga_functions.names import FunctionName
from geminga_functions.state.changelog import ChangelogState
from geminga_functions.state.table import REST_LANE
from geminga_protocol.functions.functions_pb2 import EFFECTIVELY_ONCE

pytestmark = pytest.mark.integration

# A running sum: a result tells which input it is of, and what the state was.
RUNNING_SUM = """
def process(input, context):
    total = int(context.get_state("sum") or b"0") + input
    context.put_state("sum", str(total))
    context.incr_counter("count", 1)
    return f"{input}:{total}"
"""
# Longer than an instance takes to send again what it may have sent before.
QUIET_S = 1.0


def between_topics_that_deduplicate(functions: Functions, partitions: int) -> str:
    """Let the function lead from topic `in` to topic `out` of a new namespace; returns it."""
    namespace = f"public/{functions.input}"
    web, details = functions.web_url, functions.details
    assert rest(web, "PUT", f"/admin/v2/namespaces/{namespace}")[0] == 204
    path = f"/admin/v2/namespaces/{namespace}/deduplication"
    assert rest(web, "POST", path, body=True)[0] == 204
    if partitions:
        for name, number in (("in", partitions), ("out", 2)):
            path = f"/admin/v2/persistent/{namespace}/{name}/partitions"
            assert rest(web, "PUT", path, number)[0] == 204
    del details.source.inputSpecs[functions.input]
    details.source.inputSpecs[f"{namespace}/in"].SetInParent()
    details.sink.topic = f"{namespace}/out"
    details.processingGuarantees = EFFECTIVELY_ONCE
    return namespace


@pytest.mark.parametrize("partitions", [0, 3], ids=["one topic", "three partitions"])
@pytest.mark.parametrize(
    ("count", "kills"),
    [(1_500, 2), pytest.param(10_000, 20, marks=pytest.mark.full)],
    ids=["short", "long"],
)
async def test_results_and_state_are_those_of_each_input_once_though_instances_are_killed(
    standalone: StandaloneProcess, tmp_path: Path, partitions: int, count: int, kills: int
) -> None:
    functions = Functions(standalone.service_url, standalone.web_service_url, tmp_path)
    namespace = between_topics_that_deduplicate(functions, partitions)
    details = functions.details
    numbers = range(1, count + 1)
    function = FunctionName(details.tenant, details.namespace, details.name)
    async with geminga.connect(standalone.service_url) as client:
        async with client.producer(f"{namespace}/in") as producer:
            for number in numbers:
                producer.send_nowait(str(number).encode())
                await producer.ready()
            await producer.flush()
        seen: list[tuple[int, int]] = []
        lives = 0
        async with client.consumer(
            f"{namespace}/out", "s", initial_position="earliest", type="exclusive"
        ) as consumer:

            async def take_until(received: int) -> None:
                while len(seen) < received:
                    for message in await consumer.receive_many(received - len(seen)):
                        value, total = message.data.split(b":")
                        seen.append((int(total), int(value)))

            while len(seen) < count:
                lives += 1
                async with functions.instance("user_code", RUNNING_SUM) as instance:
                    await instance.receive(Started)
                    async with asyncio.timeout(TIMEOUT_S):
                        # The last life does what is left.
                        is_last = lives > kills
                        await take_until(count if is_last else lives * (count // (kills + 1)))
                    if is_last:
                        # What comes now came twice.
                        assert await consumer.receive_many(1, QUIET_S) == []
                    instance.process.kill()
        # The sums of some order of all numbers: each result is once there, and none of a state that
        # lacked something, or had something twice.
        seen.sort()
        expected = 0
        for total, value in seen:
            expected += value
            assert total == expected
        assert sorted(value for _, value in seen) == list(numbers)
        async with ChangelogState(client, "public/functions", function, REST_LANE) as state:
            assert state.get("sum") == str(sum(numbers)).encode()
            assert state.sum_of("count") == count
    assert lives == kills + 1


COUNTING = """
def process(input, context):
    context.incr_counter("sum", input)
    return str(input)
"""


async def test_partitions_that_move_amid_messages_count_each_of_them_once(
    standalone: StandaloneProcess, tmp_path: Path
) -> None:
    functions = Functions(standalone.service_url, standalone.web_service_url, tmp_path)
    namespace = between_topics_that_deduplicate(functions, 4)
    details = functions.details
    details.parallelism = 2
    function = FunctionName(details.tenant, details.namespace, details.name)
    seen: list[int] = []
    sent = 0
    async with (
        geminga.connect(standalone.service_url) as client,
        functions.instance("user_code", COUNTING) as first,
        client.producer(f"{namespace}/in") as producer,
        client.consumer(f"{namespace}/out", "s", initial_position="earliest") as consumer,
        asyncio.timeout(2 * TIMEOUT_S),
    ):

        async def go_on() -> None:
            """More inputs than are processed meanwhile: each owner of a partition finds some."""
            nonlocal sent
            for _ in range(50):
                sent += 1
                producer.send_nowait(str(sent).encode())
            await producer.flush()
            seen.extend(int(each.data) for each in await consumer.receive_many(500, 0))

        await first.receive(Started)
        while not seen:
            await go_on()
        # It gets partitions of which the first one holds messages; and then loses them again.
        async with functions.instance("user_code", COUNTING) as second:
            await second.receive(Started)
            while not (await second.status()).written:
                await go_on()
            second.process.kill()
        await go_on()
        while len(seen) < sent:
            seen += [int(each.data) for each in await consumer.receive_many(500)]
        assert await consumer.receive_many(1, QUIET_S) == []
        assert sorted(seen) == list(range(1, sent + 1))
        async with ChangelogState(client, "public/functions", function, REST_LANE) as state:
            assert state.sum_of("sum") == sum(seen)
        assert (await first.status()).total.system_exceptions == 0
        await first.stop()
