"""A lookup over HTTP names the owner's addresses, whichever broker was asked."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from geminga_broker.admin.app import answering_for
from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topics.topic_names import TopicName

LOOKUP = "/lookup/v2/topic/persistent/public/default/t"


async def test_every_address_is_there_though_some_are_empty(client: httpx.AsyncClient) -> None:
    assert (await client.get(LOOKUP)).json() == {
        "brokerUrl": "pulsar://127.0.0.1:26650",
        "brokerUrlTls": "",
        "httpUrl": "http://127.0.0.1:28080",
        "httpUrlTls": "",
        "nativeUrl": "pulsar://127.0.0.1:26650",
        "brokerUrlSsl": "",
    }


async def test_another_brokers_topic_is_answered_not_redirected(
    client: httpx.AsyncClient, rival: Ownership
) -> None:
    await rival.owner(TopicName.parse("t"))
    answer = await client.get(LOOKUP)
    assert answer.status_code == 200
    assert answer.json()["brokerUrl"] == "pulsar://127.0.0.1:1"


@pytest.mark.parametrize(
    ("query", "headers"),
    [("?listenerName=test", {}), ("", {"X-Pulsar-ListenerName": "test"})],
)
async def test_a_listener_that_is_not_there_is_named(
    query: str, headers: dict[str, str], client: httpx.AsyncClient
) -> None:
    answer = await client.get(LOOKUP + query, headers=headers)
    assert answer.status_code == 500
    assert "the broker do not have test listener" in answer.json()["reason"]


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("?listenerName=outside", {}),
        ("?listenerName=", {"X-Pulsar-ListenerName": "outside"}),
        ("?listenerName=outside", {"X-Pulsar-ListenerName": "test"}),
    ],
)
async def test_the_owners_listener_that_is_named_is_told(
    query: str, headers: dict[str, str], client: httpx.AsyncClient, rival: Ownership
) -> None:
    await rival.owner(TopicName.parse("t"))
    told = (await client.get(LOOKUP + query, headers=headers)).json()
    assert told["brokerUrl"] == told["nativeUrl"] == "pulsar://outside:6650"
    assert told["httpUrl"] == "http://127.0.0.1:2"  # as upstream: the broker's own


async def test_requests_that_come_by_a_bind_address_are_answered_for_its_listener(
    app: FastAPI, rival: Ownership
) -> None:
    await rival.owner(TopicName.parse("t"))
    transport = httpx.ASGITransport(app=answering_for("outside", app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://outside:8080") as client:
        assert (await client.get(LOOKUP)).json()["brokerUrl"] == "pulsar://outside:6650"
        unknown = await client.get(f"{LOOKUP}?listenerName=test")
        assert unknown.status_code == 500
        elsewhere = await client.get("/admin/v2/persistent/public/default/t/stats")
        assert elsewhere.status_code == 307
        assert elsewhere.headers["location"].startswith("http://outside:8080/admin/v2/")


async def test_the_bundle_is_a_bare_text(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{LOOKUP}/bundle")
    assert answer.text in {
        "0x00000000_0x40000000",
        "0x40000000_0x80000000",
        "0x80000000_0xc0000000",
        "0xc0000000_0xffffffff",
    }
