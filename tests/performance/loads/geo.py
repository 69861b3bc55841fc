"""Two clusters on this machine that replicate to each other: what a replicated message costs, how
far the other cluster lags behind, and whether it keeps up.

A backlog is published in the one, a consumer takes it there, then it is replicated: the CPU of both
ways is that of the sending cluster, over the same entries. Then messages are published at half the
rate at which the backlog was, for the time that is measured, while a replicator tails them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.performance.loads.measure import Figures, LoadFailed, Measure, Phases, percentiles
from tests.performance.loads.official_client import (
    CLIENT_BATCH_MESSAGES,
    NUMBER,
    PENDING_MAX,
    SEND_TIMEOUT_MS,
    Receipts,
    Took,
    client_of,
    drain,
    paced,
    publish,
    subscribe,
)
from tests.performance.rivals.servers import Rival, Server, started, wait_until_ready

NEAR, FAR = "near", "far"
TENANT = "geo"
# Of a backlog of batches, and of one of single messages, each after a rehearsal with a part of it.
BATCHED, SINGLE, REHEARSAL = 200_000, 50_000, 0.25
STEADY_S = 20.0
# Paced as in the scenario of latencies at one server.
LATENCY_RATE, LATENCY_S = 500, 20
SIZE = 1024
TICK_S = 0.01
POLL_S = 0.25
REPLICATED_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The two clusters."""

    near: Server
    far: Server

    def ask(self, server: Server, method: str, path: str, body: object = None) -> None:
        """A REST request that succeeds."""
        status, answer = server.web(method, f"/admin/v2/{path}", body)
        if status not in (200, 204):
            raise LoadFailed(f"{method} {path}: {status} {answer!r}")

    def introduce(self) -> None:
        """Have each know the other."""
        for server, name, other in ((self.near, FAR, self.far), (self.far, NEAR, self.near)):
            record = {"serviceUrl": other.web_url, "brokerServiceUrl": other.service_url}
            self.ask(server, "PUT", f"clusters/{name}", record)
            self.ask(server, "PUT", f"tenants/{TENANT}", {"allowedClusters": [NEAR, FAR]})

    def namespace(self, name: str) -> str:
        """Make a namespace in both, which repeats no message."""
        namespace = f"{TENANT}/{name}"
        for server in (self.near, self.far):
            self.ask(server, "PUT", f"namespaces/{namespace}", {})
            self.ask(server, "POST", f"namespaces/{namespace}/deduplication", True)  # noqa: FBT003
        return namespace

    def replicate(self, namespace: str) -> None:
        """From the near one to the far one, all that there is."""
        self.ask(self.near, "POST", f"namespaces/{namespace}/replication", [NEAR, FAR])

    def subscribe(self, topic: str) -> None:
        """Keep what is published, in both."""
        for server in (self.near, self.far):
            with client_of(server) as client:
                subscribe(client, topic).close()

    def await_replicated(self, topic: str) -> None:
        """Return when the far one has every entry. The near one is not asked: it is measured."""
        wanted = _entries(self.near, topic)
        deadline = time.perf_counter() + REPLICATED_S_MAX
        while (found := _entries(self.far, topic)) != wanted:
            if time.perf_counter() > deadline:
                raise LoadFailed(f"{found} of {wanted} entries are replicated")
            time.sleep(TICK_S)


def geo(rival: Rival, directory: Path, scale: float) -> Phases:
    """Cost, lag and backlog of replication."""
    near, far = rival.of_cluster(NEAR), rival.of_cluster(FAR)
    with (
        started(near, directory / NEAR) as first,
        started(far, directory / FAR) as second,
    ):
        wait_until_ready(near, first)
        wait_until_ready(far, second)
        pair = Pair(first, second)
        pair.introduce()
        phases: Phases = {}
        for kind, messages in (("batched", BATCHED), ("single", SINGLE)):
            for name, share in ((f"{kind}-rehearsal", REHEARSAL), (kind, 1)):
                amount = int(messages * share * scale)
                phases |= _cost(pair, name, amount, batched=kind == "batched")
        namespace = pair.namespace("tail")
        pair.replicate(namespace)
        rate = phases["batched publish"]["per_s"] / 2
        phases["steady"] = _steady(pair, namespace, rate, STEADY_S * scale)
        messages = int(LATENCY_RATE * LATENCY_S * scale)
        phases |= _lag(pair, namespace, messages)
    return phases


def _cost(pair: Pair, name: str, messages: int, *, batched: bool) -> Phases:
    """Deliver a backlog and replicate it, in CPU of the near cluster."""
    namespace = pair.namespace(name)
    topic = f"persistent://{namespace}/backlog"
    pair.subscribe(topic)
    with client_of(pair.near) as client:  # the other one is taken by the consumer
        client.subscribe(topic, "keeper").close()
    published = publish(pair.near, topic, messages, SIZE, batched=batched)
    delivered = drain(pair.near, topic, messages)
    with Measure(pair.near) as measure:
        pair.replicate(namespace)
        pair.await_replicated(topic)
    replicated = measure.figures(messages)
    replicated["times_delivery"] = replicated["cpu_us"] / delivered["cpu_us"]
    return {
        f"{name} publish": published,
        f"{name} deliver": delivered,
        f"{name} replicate": replicated,
    }


@dataclass(slots=True)
class Backlog:
    """How many entries are not replicated yet, asked for again and again."""

    ask: Callable[[], int]
    seen: list[int] = field(default_factory=list[int])
    _is_over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Until ``stop``."""
        while not self._is_over.wait(POLL_S):
            self.seen.append(self.ask())

    def stop(self) -> None:
        """Ask no more."""
        self._is_over.set()


def _steady(pair: Pair, namespace: str, rate: float, seconds: float) -> Figures:
    """Publish batches of so many messages a second; how the backlog grows meanwhile, and how long
    it is there after the last receipt."""
    topic = f"persistent://{namespace}/steady"
    pair.subscribe(topic)
    backlog = Backlog(lambda: _backlog(pair.near, topic))
    watching = threading.Thread(target=backlog.watch)
    total = int(rate * seconds)
    receipts = Receipts(total)
    padding = b"x" * (SIZE - NUMBER.size)
    with client_of(pair.near) as client, Measure(pair.near) as measure:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=CLIENT_BATCH_MESSAGES,
            block_if_queue_full=True,
            max_pending_messages=PENDING_MAX,
            send_timeout_millis=SEND_TIMEOUT_MS,
        )
        watching.start()
        begun = time.perf_counter()
        sent = 0
        while sent < total:
            due = min(total, int((time.perf_counter() - begun) * rate))
            for number in range(sent, due):
                producer.send_async(NUMBER.pack(number) + padding, receipts.answered)
            sent = due
            time.sleep(TICK_S)
        producer.flush()
        receipts.wait()
        answered = time.perf_counter()
        backlog.stop()
        pair.await_replicated(topic)
        left_s = time.perf_counter() - answered
        watching.join()
    return measure.figures(total) | {
        "backlog_max": float(max(backlog.seen, default=0)),
        "backlog_end": float(backlog.seen[-1]) if backlog.seen else 0.0,
        "left_s": left_s,
    }


def _lag(pair: Pair, namespace: str, messages: int) -> Phases:
    """Of single messages the time from the receipt of the near cluster until a consumer of the far
    one has it; and beside it the whole time until one of the near cluster has it, of others."""
    topics = [f"persistent://{namespace}/{name}" for name in ("lag", "local")]
    took: list[Took] = []
    for topic, consuming in zip(topics, (pair.far, pair.near), strict=True):
        pair.subscribe(topic)
        took.append(
            paced(pair.near, consuming, topic, rate=LATENCY_RATE, total=messages, size=SIZE)
        )
    far, local = took
    lags_ms = [
        arrived - acknowledged
        for arrived, acknowledged in zip(far.arrived_ms, far.acknowledged_ms, strict=True)
    ]
    return {
        "lag": far.figures | percentiles(lags_ms),
        "local": local.figures | percentiles(local.arrived_ms),
    }


def _entries(server: Server, topic: str) -> int:
    """How many entries the topic's log has."""
    return int(_asked(server, topic, "internalStats")["entriesAddedCounter"])


def _backlog(server: Server, topic: str) -> int:
    return int(_asked(server, topic, "stats")["replication"][FAR]["replicationBacklog"])


def _asked(server: Server, topic: str, what: str) -> dict[str, Any]:
    path = topic.replace("persistent://", "/admin/v2/persistent/")
    status, body = server.web("GET", f"{path}/{what}")
    if status != 200:
        raise LoadFailed(f"no {what}: {status} {body!r}")
    answer: dict[str, Any] = json.loads(body)
    return answer
