"""A broker says which brokers live, who leads, and whether it is well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.unit.geminga_broker.admin.conftest import CONFIGURATION

from geminga_broker.ownership.ownership import Ownership

if TYPE_CHECKING:
    from typing import Protocol

    class RememberingBroker(Protocol):
        """What these tests set on the broker behind the application."""

        is_healthy: bool


BROKERS = "/admin/v2/brokers"


async def test_a_broker_that_is_well_says_ok(client: httpx.AsyncClient) -> None:
    for path in ("health", "ready", "health?topicVersion=V2", "health?brokerId=127.0.0.1:28080"):
        answer = await client.get(f"{BROKERS}/{path}")
        assert (answer.status_code, answer.text) == (200, "ok")


async def test_a_broker_that_is_not_well_says_why(
    client: httpx.AsyncClient, broker: RememberingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.is_healthy = False
    answer = await client.get(f"{BROKERS}/health")
    assert answer.status_code == 503
    assert "no bookie answers" in answer.json()["reason"]
    assert "health check failed" in caplog.text


async def test_another_brokers_health_is_asked_there(
    client: httpx.AsyncClient, rival: Ownership, settle: Callable[[], Awaitable[None]]
) -> None:
    await settle()
    answer = await client.get(f"{BROKERS}/health?brokerId={rival.address.broker_id}")
    assert answer.status_code == 307
    assert answer.headers["Location"].startswith("http://127.0.0.1:2/admin/v2/brokers/health?")


async def test_all_living_brokers_are_listed(
    client: httpx.AsyncClient, rival: Ownership, settle: Callable[[], Awaitable[None]]
) -> None:
    await settle()
    expected = sorted(["127.0.0.1:28080", rival.address.broker_id])
    assert (await client.get(BROKERS)).json() == expected
    assert (await client.get(f"{BROKERS}/standalone")).json() == expected


async def test_settings_are_told_and_cannot_be_changed_while_the_broker_runs(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.get(f"{BROKERS}/configuration")).json() == []
    assert (await client.get(f"{BROKERS}/configuration/values")).json() == {}
    assert (await client.get(f"{BROKERS}/configuration/runtime")).json() == CONFIGURATION
    answer = await client.post(f"{BROKERS}/configuration/keepAliveIntervalSeconds/5")
    assert answer.status_code == 412
    assert answer.json() == {"reason": "Can't update non-dynamic configuration"}
    answer = await client.delete(f"{BROKERS}/configuration/keepAliveIntervalSeconds")
    assert answer.status_code == 412
    assert answer.json() == {"reason": "Can't delete non-dynamic configuration"}


PREFIX = "/admin/v2/broker-stats"


async def test_the_load_report_is_shown_as_it_would_be_written(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{PREFIX}/load-report")
    assert answer.status_code == 200
    report = answer.json()
    assert report["webServiceUrl"] == "http://127.0.0.1:28080"
    assert report["lastStats"] == {}
    assert report["loadReportType"] == "LocalBrokerData"


async def test_units_of_resources_are_refused_as_by_upstreams_load_manager(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get(f"{PREFIX}/broker-resource-availability/public/default")
    assert answer.status_code == 409
    assert "does not support this operation" in answer.json()["reason"]
