"""Clusters are registered with URLs that can be, and a broker keeps its own."""

from __future__ import annotations

import httpx
import pytest

CLUSTERS = "/admin/v2/clusters"


@pytest.mark.parametrize(
    ("field", "url", "reason"),
    [
        ("serviceUrl", "ftp://x:1", "service url, example: http://pulsar.example.com:8080"),
        (
            "serviceUrlTls",
            "http://x:1",
            "service tls url, example: https://pulsar.example.com:8443",
        ),
        (
            "brokerServiceUrl",
            "http://x:1",
            "broker service url, example: pulsar://pulsar.example.com:6650",
        ),
        (
            "brokerServiceUrlTls",
            "pulsar://x:1",
            "broker service tls url, example: pulsar+ssl://pulsar.example.com:6651",
        ),
        ("serviceUrl", "http://", "service url, example: http://pulsar.example.com:8080"),
        ("serviceUrl", "http://a,,b", "service url, example: http://pulsar.example.com:8080"),
    ],
)
async def test_a_url_that_cannot_be_is_refused_with_an_example(
    field: str, url: str, reason: str, client: httpx.AsyncClient
) -> None:
    answer = await client.put(f"{CLUSTERS}/far", json={field: url})
    assert (answer.status_code, answer.json()["reason"]) == (400, f"Illegal {reason}")


@pytest.mark.parametrize("name", ["a%2Fb", "%2E%2E", "global"])
async def test_what_cannot_be_a_clusters_name_is_not_found(
    client: httpx.AsyncClient, name: str
) -> None:
    url = f"{CLUSTERS}/{name}"
    body = {"serviceUrl": "http://a:8080"}
    answers = [await client.get(url), await client.post(url, json=body), await client.delete(url)]
    assert [each.status_code for each in answers] == [404, 404, 404]


async def test_several_hosts_and_absent_urls_are_taken(client: httpx.AsyncClient) -> None:
    body = {
        "serviceUrl": "http://a:8080,b:8080",
        "brokerServiceUrl": "pulsar://a:6650,b:6650/",
        "serviceUrlTls": None,
        "brokerServiceUrlTls": "",
    }
    assert (await client.put(f"{CLUSTERS}/far", json=body)).status_code == 200
    shown = (await client.get(f"{CLUSTERS}/far")).json()
    assert shown["serviceUrl"] == body["serviceUrl"]


async def test_a_broker_keeps_its_own_cluster(client: httpx.AsyncClient) -> None:
    assert (await client.delete(f"{CLUSTERS}/standalone")).status_code == 412
    assert (await client.get(CLUSTERS)).json() == ["standalone"]


@pytest.mark.parametrize("body", [{"serviceUrl": 3}, {"brokerClientTlsEnabled": "x"}, [], 3])
async def test_a_body_of_the_wrong_shape_is_refused(
    body: object, client: httpx.AsyncClient
) -> None:
    assert (await client.put(f"{CLUSTERS}/far", json=body)).status_code == 400
