"""Metrics as Prometheus wants them, and the web application of a part that has no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from geminga_runtime.errors import GemingaError
from geminga_server.authorization import Action, Principal, Resource
from geminga_server.errors import NotAuthorized
from geminga_server.metrics import CheckHealth, LoopLag, PartMetrics, part_app
from geminga_server.metrics import part as module

BROKER = Resource("broker", "b1")


async def healthy() -> None:
    """All is well."""


async def get(
    path: str, *, check_health: CheckHealth = healthy, method: str = "GET"
) -> httpx.Response:
    app = part_app(PartMetrics("bookie"), check_health=check_health, resource=BROKER)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://part") as client:
        return await client.request(method, path)


def entries() -> Iterator[Metric]:
    yield CounterMetricFamily("geminga_bookie_entries", "Entries stored.", value=7)


def test_registered_families_and_those_of_the_process_are_there() -> None:
    metrics = PartMetrics("bookie")
    metrics.collectors.append(entries)
    for _ in range(2):
        text = metrics.text().decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert families["geminga_bookie_entries"].samples[0].value == 7
        for name in ("process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"):
            assert name in families


def test_two_parts_in_one_process_do_not_mix() -> None:
    one, other = PartMetrics("bookie"), PartMetrics("broker")
    one.collectors.append(entries)
    assert b"geminga_bookie_entries" not in other.text()


async def test_metrics_are_redirected_to_where_upstream_has_them() -> None:
    answer = await get("/metrics")
    assert (answer.status_code, answer.headers["location"]) == (302, "/metrics/")
    answer = await get("/metrics/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "process_cpu_seconds_total" in answer.text
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_a_healthy_part_says_so() -> None:
    answer = await get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_an_unhealthy_part_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise GemingaError("no bookie answers")

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    answer = await get("/health", check_health=broken)
    assert (answer.status_code, answer.json()["reason"]) == (503, "no bookie answers")
    monkeypatch.setattr(module, "HEALTH_TIMEOUT_S", 0.01)
    answer = await get("/health", check_health=stuck)
    assert answer.status_code == 503
    assert "longer than 0.01 s" in answer.json()["reason"]


async def test_other_paths_and_methods_are_refused() -> None:
    assert (await get("/elsewhere")).status_code == 404
    assert (await get("/metrics/", method="POST")).status_code == 405
    answer = await get("/metrics/", method="HEAD")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_who_may_not_read_is_told() -> None:
    asked: list[tuple[str, Action, Resource]] = []

    class Refusing:
        async def authorize(self, principal: Principal, action: Action, resource: Resource) -> None:
            asked.append((principal.role, action, resource))
            raise NotAuthorized(principal.role, action, str(resource))

    app = part_app(
        PartMetrics("bookie"), check_health=healthy, resource=BROKER, authorize=Refusing().authorize
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://part") as client:
        answer = await client.get("/metrics/")
    assert answer.status_code == 403
    assert asked == [("", Action.READ, BROKER)]


async def test_the_lag_of_the_loop_is_the_worst_since_the_last_scrape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LAG_PERIOD_S", 0.0)
    metrics = PartMetrics("bookie")
    async with LoopLag(metrics) as lag:
        async with asyncio.timeout(60):
            while lag.worst_s == 0.0:  # noqa: ASYNC110 - the loop's own turns are what is measured
                await asyncio.sleep(0)
        lag.worst_s = 1.5
        assert b"geminga_bookie_event_loop_lag_seconds 1.5" in metrics.text()
        assert b"geminga_bookie_event_loop_lag_seconds 1.5" not in metrics.text()
    assert b"lag_seconds" not in metrics.text()


def test_prometheus_comes_with_the_first_scrape() -> None:
    source = """
import sys
from geminga_server.metrics import PartMetrics
metrics = PartMetrics("bookie")
metrics.collectors.append(list)
assert "prometheus_client" not in sys.modules
metrics.text()
"""
    subprocess.run([sys.executable, "-c", source], check=True)
