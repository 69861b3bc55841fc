"""A lookup over HTTP names the owner's addresses, whoever was asked."""

from __future__ import annotations

import httpx
import pytest

from geminga_broker.ownership.ownership import Ownership
from geminga_protocol.pulsar.topic_names import TopicName

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


async def test_the_bundle_is_a_bare_text(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{LOOKUP}/bundle")
    assert answer.text in {
        "0x00000000_0x40000000",
        "0x40000000_0x80000000",
        "0x80000000_0xc0000000",
        "0xc0000000_0xffffffff",
    }
