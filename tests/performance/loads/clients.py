"""What our client library and the official one cost beside each other, in CPU of the client.

Each client has a process of its own, which is this module run as a program. Each publishes to a
topic of its own; both receive the same topic, since how large its batches are decides what one of
their messages costs.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import pulsar
from tests.performance.loads.measure import Figures, LoadFailed, Phases
from tests.performance.loads.official_client import (
    CLIENT_BATCH_MESSAGES,
    FINISH_S_MAX,
    NAMESPACE,
    NUMBER,
    PENDING_MAX,
    RECEIVE_TIMEOUT_MS,
    SEND_TIMEOUT_MS,
    Receipts,
    client_of,
    publish,
    silent_logger,
)
from tests.performance.rivals.servers import Server

import geminga

SINGLY, MANY = "singly", "many"
BATCH_RECEIVED = 100
IMPORTS = 6
PHASES = ("publish", "receive", "receive_many")
IMPORT = "import time; t = time.process_time(); import geminga; print(time.process_time() - t)"


def clients(server: Server, *, messages: int, size: int) -> Phases:
    """Publish in batches, then receive and acknowledge one by one, then by hundreds.

    ``times_official`` is how often our cost goes into the official client's.
    """
    topic = f"persistent://{NAMESPACE}/clients-{time.time_ns()}"
    with client_of(server) as client:
        for name in DRIVERS:
            for subscription in (SINGLY, MANY):
                client.subscribe(topic, f"{name}-{subscription}").close()
    publish(server, topic, messages, size, batched=True)
    arguments = (server.service_url, topic, str(messages), str(size))
    ours, official = (json.loads(run_client("-m", __name__, name, *arguments)) for name in DRIVERS)
    for each in (topic, *(f"{topic}-{name}" for name in DRIVERS)):
        path = each.replace("persistent://", "/admin/v2/persistent/")
        status, body = server.web("DELETE", f"{path}?force=true")
        if status != 204:
            raise LoadFailed(f"the topic could not be deleted: {status} {body!r}")
    return {
        phase: {
            "cpu_us": ours[phase],
            "official_cpu_us": official[phase],
            "times_official": official[phase] / ours[phase],
        }
        for phase in PHASES
    }


def importing() -> Phases:
    """What ``import geminga`` costs a program: the least of some, whose first writes bytecode."""
    costs_s = [float(run_client("-c", IMPORT)) for _ in range(IMPORTS)]
    return {"import": {"cpu_ms": min(costs_s) * 1e3}}


def run_client(*arguments: str) -> str:
    """Run a program of Python's in a process of its own; what it writes."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        timeout=4 * FINISH_S_MAX,
        check=False,
    )
    if done.returncode:
        raise LoadFailed(f"a client ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


# In the process of a client


@contextmanager
def _cost(figures: Figures, phase: str, messages: int) -> Generator[None]:
    """All threads of the process count: the official client works in some of its own."""
    begun_s = time.process_time()
    yield
    figures[phase] = (time.process_time() - begun_s) / messages * 1e6


def _check(data: bytes, number: int) -> None:
    if NUMBER.unpack_from(data)[0] != number:
        raise LoadFailed(f"{NUMBER.unpack_from(data)[0]} came where {number} was due")


def drive_official(url: str, topic: str, messages: int, size: int) -> Figures:
    """The phases, by the official client."""
    figures: Figures = {}
    client = pulsar.Client(url, logger=silent_logger())
    policy = pulsar.ConsumerBatchReceivePolicy(BATCH_RECEIVED, -1, 1000)
    producer = client.create_producer(
        f"{topic}-official",
        batching_enabled=True,
        batching_max_messages=CLIENT_BATCH_MESSAGES,
        block_if_queue_full=True,
        max_pending_messages=PENDING_MAX,
        send_timeout_millis=SEND_TIMEOUT_MS,
    )
    padding, receipts = b"x" * (size - NUMBER.size), Receipts(messages)
    with _cost(figures, "publish", messages):
        for number in range(messages):
            producer.send_async(NUMBER.pack(number) + padding, receipts.answered)
        producer.flush()
        receipts.wait()
    with _cost(figures, "receive", messages):
        consumer = client.subscribe(topic, f"official-{SINGLY}")
        for number in range(messages):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            _check(message.data(), number)
            consumer.acknowledge(message)
        consumer.close()
    with _cost(figures, "receive_many", messages):
        consumer = client.subscribe(topic, f"official-{MANY}", batch_receive_policy=policy)
        number = 0
        while number < messages:
            for message in consumer.batch_receive():
                _check(message.data(), number)
                consumer.acknowledge(message)
                number += 1
        consumer.close()
    client.close()
    return figures


def drive_ours(url: str, topic: str, messages: int, size: int) -> Figures:
    """The phases, by our client."""
    return asyncio.run(_drive_ours(url, topic, messages, size))


async def _drive_ours(url: str, topic: str, messages: int, size: int) -> Figures:
    figures: Figures = {}
    padding = b"x" * (size - NUMBER.size)
    async with asyncio.timeout(FINISH_S_MAX), geminga.connect(url) as client:
        async with client.producer(f"{topic}-ours", pending_messages_max=PENDING_MAX) as producer:
            with _cost(figures, "publish", messages):
                for number in range(messages):
                    await producer.ready()
                    producer.send_nowait(NUMBER.pack(number) + padding)
                await producer.flush()
        with _cost(figures, "receive", messages):
            async with client.consumer(topic, f"ours-{SINGLY}") as consumer:
                for number in range(messages):
                    message = await consumer.receive()
                    _check(message.data, number)
                    consumer.ack(message)
        with _cost(figures, "receive_many", messages):
            async with client.consumer(topic, f"ours-{MANY}") as consumer:
                number = 0
                while number < messages:
                    for message in await consumer.receive_many(BATCH_RECEIVED):
                        _check(message.data, number)
                        consumer.ack(message)
                        number += 1
    return figures


Driver = Callable[[str, str, int, int], Figures]
DRIVERS: Mapping[str, Driver] = {"ours": drive_ours, "official": drive_official}

if __name__ == "__main__":
    name, service_url, topic_name, count, size_bytes = sys.argv[1:]
    print(json.dumps(DRIVERS[name](service_url, topic_name, int(count), int(size_bytes))))
