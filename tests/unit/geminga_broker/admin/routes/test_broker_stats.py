"""A broker shows its load report as it would write it now, in upstream's form."""

from __future__ import annotations

import httpx

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
