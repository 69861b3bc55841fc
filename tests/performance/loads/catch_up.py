"""Reading a backlog that is in no memory, through broker and bookies.

A topic is filled with batches of 1 KB messages, everything is stopped, the system forgets the
files, everything is started again; then a consumer reads the topic from its beginning. The batches
are equal, or a large one and a small one take turns, as clients make them that publish as fast as
they can.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.performance.loads.measure import Figures, LoadFailed, Measure, Phases
from tests.performance.loads.official_client import (
    NAMESPACE,
    NUMBER,
    RECEIVE_TIMEOUT_MS,
    SEND_TIMEOUT_MS,
    Receipts,
    client_of,
    publish,
    subscribe,
)
from tests.performance.rivals.program import forget_pages
from tests.performance.rivals.servers import Ports, Rival, Server, started, wait_until_ready

MESSAGES = 400_000
MESSAGE_BYTES = 1024
BATCH_MESSAGES = 100
# Messages of a large batch, after which there is one with a single message.
LARGE_BATCH_MESSAGES = 500
# No batch ends by itself.
LARGE_BATCH_BYTES_MAX = 4 * 1024 * 1024
LARGE_BATCH_DELAY_MS = 60_000
# A part of the amount that is read first and does not count: what starts is not warm.
WARM_UP = 0.25
TOPIC = f"persistent://{NAMESPACE}/backlog"
WARM_UP_TOPIC = f"persistent://{NAMESPACE}/backlog-read-first"
# What the broker has got from its bookies: ours says so.
BYTES_READ = "geminga_ledger_read_bytes_total"

Fill = Callable[[Server, str, int], None]


def catch_up(rival: Rival, directory: Path, scale: float) -> Phases:
    """What reading the backlog costs."""
    return _read_cold(rival, directory, int(MESSAGES * scale), _fill)


def catch_up_unequal(rival: Rival, directory: Path, scale: float) -> Phases:
    """What it costs where large and small batches take turns."""
    return _read_cold(rival, directory, int(MESSAGES * scale), _fill_unequally)


def _read_cold(rival: Rival, directory: Path, messages: int, fill: Fill) -> Phases:
    topics = {WARM_UP_TOPIC: int(messages * WARM_UP), TOPIC: messages}
    ports = Ports.free()
    with started(rival, directory, ports) as server:
        wait_until_ready(rival, server)
        for topic, count in topics.items():
            with client_of(server) as client:
                subscribe(client, topic).close()
            fill(server, topic, count)
    forget_pages(directory)
    with started(rival, directory, ports) as server:
        wait_until_ready(rival, server)
        read = {topic: _read(server, topic, count) for topic, count in topics.items()}
    return {"read": read[TOPIC]}


def _fill(server: Server, topic: str, messages: int) -> None:
    publish(server, topic, messages, MESSAGE_BYTES, batched=True, batch_messages=BATCH_MESSAGES)


def _fill_unequally(server: Server, topic: str, messages: int) -> None:
    padding = b"x" * (MESSAGE_BYTES - NUMBER.size)
    receipts = Receipts(messages)
    with client_of(server) as client:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=LARGE_BATCH_MESSAGES + 1,
            batching_max_allowed_size_in_bytes=LARGE_BATCH_BYTES_MAX,
            batching_max_publish_delay_ms=LARGE_BATCH_DELAY_MS,
            send_timeout_millis=SEND_TIMEOUT_MS,
        )
        for number in range(messages):
            producer.send_async(NUMBER.pack(number) + padding, receipts.answered)
            if number % (LARGE_BATCH_MESSAGES + 1) in (
                LARGE_BATCH_MESSAGES - 1,
                LARGE_BATCH_MESSAGES,
            ):
                producer.flush()
        producer.flush()
        receipts.wait()


def _read(server: Server, topic: str, messages: int) -> Figures:
    """Nothing is acknowledged: this is about reading."""
    unpack = NUMBER.unpack_from
    read_before = server.metric(BYTES_READ)
    with client_of(server) as client, Measure(server) as measure:
        consumer = subscribe(client, topic)
        for number in range(messages):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            if unpack(message.data())[0] != number:
                raise LoadFailed(f"{unpack(message.data())[0]} came where {number} was due")
        consumer.close()
    size_bytes = messages * MESSAGE_BYTES
    figures = measure.figures(messages) | measure.volume(size_bytes)
    if read_before is not None:
        figures["read_ratio"] = ((server.metric(BYTES_READ) or 0.0) - read_before) / size_bytes
    return figures
