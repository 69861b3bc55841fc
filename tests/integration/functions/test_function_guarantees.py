"""Proves what becomes of each message whatever happens to the instance that has it: killed amid its
work, refusing messages, or too slow for its time-out."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.processes.function_instances import TIMEOUT_S, Functions, publish, results

import geminga
from geminga_functions.instance.messages import Started
from geminga_protocol.functions.functions_pb2 import ATLEAST_ONCE, ATMOST_ONCE, ProcessingGuarantees

NUMBERS, LIVES = 600, 5
# Each number is written down before anything else, so that a kill hides no call.
CODE = """
import os

file = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def process(input):
    os.write(file, b"%d\\n" % input)
    sum(range(20_000))
    return input
"""


@pytest.mark.parametrize("guarantee", [ATLEAST_ONCE, ATMOST_ONCE], ids=ProcessingGuarantees.Name)
async def test_each_message_is_processed_as_often_as_is_guaranteed_though_instances_are_killed(
    functions: Functions,
    client: geminga.Client,
    tmp_path: Path,
    guarantee: ProcessingGuarantees.ValueType,
) -> None:
    functions.details.processingGuarantees = guarantee
    path = tmp_path / "called"
    path.touch()
    code = CODE.format(path=str(path))

    def called() -> list[int]:
        return [int(each) for each in path.read_text().split()]

    async with client.producer(functions.input) as producer:
        for number in range(NUMBERS):
            await producer.ready()
            producer.send_nowait(str(number).encode())
        await producer.flush()
    for _ in range(LIVES):
        before = len(called())
        async with functions.instance("user_code", code) as instance:
            await instance.receive(Started)
            async with asyncio.timeout(TIMEOUT_S):
                # Amid a slice of messages, and before acknowledgements are sent together.
                while len(called()) < before + NUMBERS // LIVES // 4:  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.001)
            instance.process.kill()
    async with functions.instance("user_code", code) as instance:
        await instance.receive(Started)
        async with asyncio.timeout(TIMEOUT_S):
            while NUMBERS - 1 not in called():  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.01)
        await instance.stop()
    times = Counter(called())
    if guarantee == ATMOST_ONCE:
        # A few are lost with each life: those that were acknowledged, and not processed yet.
        assert set(times.values()) == {1}
        assert len(times) > NUMBERS // 2
    else:
        assert set(times) == set(range(NUMBERS))


async def test_a_message_that_is_refused_too_often_becomes_a_dead_letter(
    functions: Functions, client: geminga.Client
) -> None:
    details, dead = functions.details, f"{functions.input}-dead"
    details.source.negativeAckRedeliveryDelayMs = 100
    details.retryDetails.maxMessageRetries = 2
    details.retryDetails.deadLetterTopic = dead
    await publish(client, functions.input, b"bad", b"good")
    code = "def process(input):\n    return {'good': input}[input]\n"
    async with functions.instance("user_code", code) as instance:
        await instance.receive(Started)
        (letter,) = await results(client, dead, 1)
        assert letter.data == b"bad"
        status = await instance.status()
        assert (status.total.user_exceptions, status.total.processed) == (3, 1)
        await instance.stop()
    assert [each.data for each in await results(client, functions.output, 1)] == [b"good"]


async def test_a_message_that_takes_longer_than_its_time_out_comes_again(
    functions: Functions, client: geminga.Client
) -> None:
    functions.details.source.timeoutMs = 1000
    await publish(client, functions.input, b"1")
    code = (
        "import asyncio\n\ncalls = []\n\n\n"
        "async def process(input):\n"
        "    calls.append(input)\n"
        "    await asyncio.sleep(30 if len(calls) == 1 else 0)\n"
        "    return len(calls)\n"
    )
    async with functions.instance("user_code", code) as instance:
        await instance.receive(Started)
        async with asyncio.timeout(TIMEOUT_S):
            while (await instance.status()).total.received < 2:  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.05)
