"""In which order a worker opens and closes its parts, and which topics it has compacted as the
leader, one after the other."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, cast

import pytest

from geminga_functions import worker as workers
from geminga_functions.errors import NotLeader
from geminga_functions.names import FunctionName
from geminga_functions.state.lanes import lane_prefix
from geminga_functions.worker import Worker
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer

if TYPE_CHECKING:
    from geminga_server.http.rest_calls import RestCall

LANE = lane_prefix("public/functions", FunctionName("t", "n", "f"))
PACKAGE = "persistent://public/functions/package-f-0"


class FakeWorker:
    """What ``Worker`` needs to have topics compacted; a compaction runs for one look at it."""

    web_url = "http://broker"
    config = SimpleNamespace(pulsar_functions_namespace="public/functions")
    clock = SimpleNamespace(wall_ms=lambda: 0)
    functions = SimpleNamespace(topic="persistent://public/functions/metadata")
    assignments = SimpleNamespace(topic="persistent://public/functions/assignments")
    _removed_kept_s = 3600.0
    _compact_topic = Worker._compact_topic

    def __init__(self) -> None:
        self.client = self.calls = self.leadership = self
        self.is_leader = True
        self.asked: list[tuple[str, str]] = []
        self.unreachable = self.loses_lead_at = ""
        self._looks = 0

    async def topics(self, _: str) -> list[str]:
        return [PACKAGE, LANE + "0", LANE + "rest"]

    async def drop_removed(self, _: int) -> None:
        if not self.is_leader:
            raise NotLeader

    async def call(self, call: RestCall) -> RestAnswer:
        topic = call.url.removesuffix("/compaction").rpartition("/")[2]
        if topic == self.unreachable:
            raise ServerUnreachable(topic)
        self.asked.append((call.method, topic))
        self.is_leader = topic != self.loses_lead_at
        if call.method == "PUT":
            return RestAnswer(204)
        self._looks += 1
        status = "RUNNING" if self._looks % 2 else "SUCCESS"
        return RestAnswer(200, json.dumps({"status": status}).encode())


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    monkeypatch.setattr(workers, "COMPACTION_POLL_S", 0.0)
    return FakeWorker()


async def compact(fake: FakeWorker) -> None:
    async with asyncio.timeout(5.0):
        await Worker._compact(cast("Worker", fake))


async def test_the_leader_has_its_logs_and_all_lanes_compacted_one_after_the_other(
    fake: FakeWorker,
) -> None:
    await compact(fake)
    lanes = [(LANE + name).rpartition("/")[2] for name in ("0", "rest")]
    assert fake.asked == [
        (method, topic)
        for topic in ("metadata", "assignments", *lanes)
        for method in ("PUT", "GET", "GET")
    ]


async def test_a_topic_whose_broker_does_not_answer_keeps_no_other_from_compaction(
    fake: FakeWorker,
) -> None:
    fake.unreachable = "metadata"
    await compact(fake)
    assert "assignments" in {topic for _, topic in fake.asked}


async def test_a_worker_that_does_not_lead_has_nothing_compacted(fake: FakeWorker) -> None:
    fake.is_leader = False
    await compact(fake)
    assert fake.asked == []


async def test_a_worker_that_loses_its_lead_has_nothing_more_compacted(fake: FakeWorker) -> None:
    fake.loses_lead_at = "metadata"
    await compact(fake)
    assert {topic for _, topic in fake.asked} == {"metadata"}


class Part:
    """A part of a worker: it notes when it is opened and closed."""

    def __init__(self, name: str, noted: list[str]) -> None:
        self.name = name
        self.noted = noted
        self.listeners: list[object] = []

    async def __aenter__(self) -> None:
        self.noted.append(f"{self.name} opens")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.noted.append(f"{self.name} closes")

    async def leave(self) -> None:
        self.noted.append("worker leaves")


async def test_a_worker_has_a_lease_only_while_its_runtime_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[str] = []
    names = "functions", "assignments", "heartbeats", "runtime", "leadership", "states"
    parts = SimpleNamespace(**{name: Part(name, noted) for name in names})
    parts.config = SimpleNamespace(topic_compaction_s=0)
    parts.calls = parts.web_url = parts._assign = parts._close_states = parts._state_topics = None
    monkeypatch.setattr(workers, "Cleanup", lambda *_: Part("cleanup", noted))
    async with AsyncExitStack() as stack:
        await Worker._open(cast("Worker", parts), stack)
        # Before it is open it may wait for the lock of its folder, which another worker still has.
        assert noted.index("runtime opens") < noted.index("heartbeats opens")
        noted.clear()
    # Instances end in order, which takes its time: until then they need their lease.
    rest = ["leadership closes", "runtime closes", "heartbeats closes", "worker leaves"]
    assert noted[2:-2] == rest
