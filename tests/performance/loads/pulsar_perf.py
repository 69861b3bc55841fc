"""The loads of Pulsar's own ``pulsar-perf``, of the distribution in ``PULSAR_HOME``.

Other clients batch, ask for messages and acknowledge them otherwise than the one that drives the
other loads. A topic is filled, then drained; what counts begins when the client is connected, so
that its start is not measured. How much it published it does not say exactly: the topic does.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.performance.loads.measure import Figures, LoadFailed, Measure, Phases
from tests.performance.loads.official_client import (
    FINISH_S_MAX,
    SUBSCRIPTION,
    subscribed_topic,
    wait_for_empty_backlog,
)
from tests.performance.rivals.processes import ProcessTree
from tests.performance.rivals.program import Program, ServerFailed, running
from tests.performance.rivals.servers import Server

# More than any machine publishes: the rate is the client's limit, as in the other loads.
RATE = 1_000_000
# Sends that wait for receipts: it ends with so many on their way.
OUTSTANDING_MAX = 10_000
# It exits with the last message, before what it gathered of acknowledgements is sent: a thousand,
# which may be of batches.
UNACKNOWLEDGED_MAX = 2_000
CLIENT_MEMORY = "-Xms256m -Xmx1g -XX:MaxDirectMemorySize=1g"
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class BesideClient:
    """The server's CPU counts; the client's is no disturbance from outside."""

    server: Server
    client: ProcessTree

    def cpu_s(self) -> float:
        """Seconds of CPU of the server."""
        return self.server.cpu_s()

    def all_cpu_s(self) -> float:
        """The client's too."""
        return self.server.all_cpu_s() + self.client.cpu_s()


def why_left_out() -> str:
    """Why the loads cannot be run here; empty where they can."""
    if not _executable().is_file():
        return "PULSAR_HOME names no Apache Pulsar distribution with bin/pulsar-perf"
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "there is no Java to run pulsar-perf: set JAVA_HOME"
    return ""


def _executable() -> Path:
    return Path(os.environ.get("PULSAR_HOME", "")) / "bin" / "pulsar-perf"


def perf(server: Server, *, messages: int, size: int, batched: bool) -> Phases:
    """Have it publish ``messages`` of ``size`` bytes, or some more, and consume all of them.

    Batches are its own: at most 1000 messages, 4 MiB, 1 ms.
    """
    with subscribed_topic(server) as topic:
        produce = ["produce", "-r", str(RATE), "-o", str(OUTSTANDING_MAX), "-s", str(size)]
        if not batched:
            produce.append("--disable-batching")
        published = _run(server, topic, [*produce, "-m", str(messages)], "Created 1 producers")
        consume = ["consume", "-ss", SUBSCRIPTION, "-sp", "Earliest"]
        stored = _stored(server, topic)
        delivered = _run(server, topic, [*consume, "-m", str(stored)], "Start receiving from")
        wait_for_empty_backlog(server, topic, left_max=UNACKNOWLEDGED_MAX)
    return {"publish": published, "deliver": delivered}


def _run(server: Server, topic: str, words: Sequence[str], begin: str) -> Figures:
    """Measure the client from the line that says ``begin`` to the one that says that it is done."""
    directory = server.program.output.parent / "pulsar-perf"
    command = [str(_executable()), words[0], "-u", server.service_url, *words[1:], topic]
    environment = {"PULSAR_EXTRA_OPTS": CLIENT_MEMORY, "PULSAR_LOG_DIR": str(directory)}
    try:
        with running(command, directory, environment) as client:
            _wait_for(client, begin)
            stored_before = _stored(server, topic)
            with Measure(BesideClient(server, client.processes)) as measure:
                _wait_for(client, " DONE ")
            is_producer = words[0] == "produce"
            messages = _stored(server, topic) - stored_before if is_producer else stored_before
            client.process.wait(FINISH_S_MAX)
    except ServerFailed as failed:
        raise LoadFailed(f"pulsar-perf failed: {failed}") from failed
    return measure.figures(messages)


def _wait_for(client: Program, words: str) -> None:
    deadline = time.perf_counter() + FINISH_S_MAX
    while words.encode() not in client.output.read_bytes():
        client.check_alive()
        if time.perf_counter() > deadline:
            raise ServerFailed(f"it did not say {words!r} in {FINISH_S_MAX:.0f} s", client.output)
        time.sleep(POLL_S)


def _stored(server: Server, topic: str) -> int:
    """How many messages the topic was given."""
    status, body = server.web(
        "GET", topic.replace("persistent://", "/admin/v2/persistent/") + "/stats"
    )
    if status != 200:
        raise LoadFailed(f"no stats: {status} {body!r}")
    return int(json.loads(body)["msgInCounter"])
