"""Reading a backlog that nobody has in memory, through broker and bookies.

A topic is filled with batches of 100 messages of 1 KB, everything is stopped, the system forgets
the files, everything is started again; then a consumer reads the topic from its beginning.
"""

from __future__ import annotations

from pathlib import Path

from tests.performance.loads import (
    NAMESPACE,
    NUMBER,
    RECEIVE_TIMEOUT_MS,
    client_of,
    publish,
    subscribe,
)
from tests.performance.measure import Figures, LoadFailed, Measure, Phases
from tests.performance.program import forget_pages
from tests.performance.servers import Ports, Rival, Server, started, wait_until_ready

MESSAGES = 400_000
MESSAGE_BYTES = 1024
BATCH_MESSAGES = 100
# A part of the amount that is read first and does not count: what starts is not warm.
WARM_UP = 0.25
TOPIC = f"persistent://{NAMESPACE}/backlog"
WARM_UP_TOPIC = f"persistent://{NAMESPACE}/backlog-read-first"


def catch_up(rival: Rival, directory: Path, scale: float) -> Phases:
    """What reading the backlog costs."""
    messages = int(MESSAGES * scale)
    topics = {WARM_UP_TOPIC: int(messages * WARM_UP), TOPIC: messages}
    ports = Ports.free()
    with started(rival, directory, ports) as server:
        wait_until_ready(rival, server)
        for topic, count in topics.items():
            _fill(server, topic, count)
    forget_pages(directory)
    with started(rival, directory, ports) as server:
        wait_until_ready(rival, server)
        read = {topic: _read(server, topic, count) for topic, count in topics.items()}
    return {"read": read[TOPIC]}


def _fill(server: Server, topic: str, messages: int) -> None:
    with client_of(server) as client:
        subscribe(client, topic).close()
    publish(server, topic, messages, MESSAGE_BYTES, batched=True, batch_messages=BATCH_MESSAGES)


def _read(server: Server, topic: str, messages: int) -> Figures:
    """Nothing is acknowledged: this is about reading."""
    unpack = NUMBER.unpack_from
    with client_of(server) as client, Measure(server) as measure:
        consumer = subscribe(client, topic)
        for number in range(messages):
            message = consumer.receive(RECEIVE_TIMEOUT_MS)
            if unpack(message.data())[0] != number:
                raise LoadFailed(f"{unpack(message.data())[0]} came where {number} was due")
        consumer.close()
    return measure.figures(messages) | measure.volume(messages * MESSAGE_BYTES)
