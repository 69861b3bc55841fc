"""The metrics page is where scrapers look, and is one valid text."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families


async def test_the_short_path_leads_to_the_page(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/metrics/")


async def test_the_page_has_the_brokers_and_the_processs_families(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/metrics/")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"pulsar_rate_in", "pulsar_broker_topics_count", "process_cpu_seconds"} <= names
