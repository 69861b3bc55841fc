"""Proves that topics are found over HTTP as over the binary protocol, whatever a broker answers."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from tests.unit.geminga.certificates import Authority, server_context
from tests.unit.geminga.listening import listening_broker
from tests.unit.geminga.web import Answered, Asked, web_server

import geminga
from geminga import (
    BrokerFailed,
    ClientError,
    NotAllowed,
    NotAuthenticated,
    NotAuthorized,
    NotConnected,
    ServiceNotReady,
    Tls,
    TlsFailed,
    Token,
    TooManyRedirects,
    TopicNotFound,
)
from geminga._transport.http_lookup import HttpLookup, WebOptions
from geminga._transport.service_urls import BrokerAddress, Route
from geminga.authentication import Authentication
from geminga_protocol.pulsar import api_pb2 as api

pytestmark = pytest.mark.real_loop  # real sockets

TOPIC = "persistent://public/default/or/ders"
OWNER = Answered({"brokerUrl": "pulsar://owner:6650", "brokerUrlTls": "pulsar+ssl://owner:6651"})


def lookup(
    *urls: str,
    tls: Tls | None = None,
    authentication: Authentication | None = None,
    listener_name: str | None = None,
    timeout_s: float = 30.0,
) -> HttpLookup:
    options = WebOptions(tls or Tls(), authentication, listener_name, timeout_s)
    return HttpLookup(urls, options, Random(1))


async def test_the_owner_of_a_topic_is_found() -> None:
    async with web_server(lambda _: OWNER) as server:
        asking = lookup(server.url, authentication=Token("t"), listener_name="inside")
        assert await asking.owner(TOPIC) == Route(BrokerAddress("owner", 6650))
    (asked,) = server.asked
    assert (
        asked.target == "/lookup/v2/topic/persistent/public/default/or%2Fders?listenerName=inside"
    )
    assert asked.headers["Authorization"] == "Bearer t"


async def test_over_https_the_owners_address_is_the_one_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = server_context(authority.issue("broker", "127.0.0.1"))
    async with web_server(lambda _: OWNER, context) as server:
        found = await lookup(server.url, tls=Tls(authority.trust_file)).owner(TOPIC)
        assert found == Route(BrokerAddress("owner", 6651, is_tls=True))
        with pytest.raises(TlsFailed, match="trust_file"):
            await lookup(server.url).owner(TOPIC)


async def test_an_owner_that_serves_nothing_of_the_kind_is_an_error() -> None:
    async with web_server(lambda _: Answered({"brokerUrl": None})) as server:
        with pytest.raises(NotConnected, match="serves no pulsar://"):
            await lookup(server.url).owner(TOPIC)


async def test_redirects_are_followed_with_credentials() -> None:
    async with web_server(lambda _: OWNER) as owner:

        def send_on(asked: Asked) -> Answered:
            return Answered(b"", 307, {"Location": f"{owner.url}{asked.target}"})

        async with web_server(send_on) as server:
            found = await lookup(server.url, authentication=Token("t")).owner(TOPIC)
            assert found == Route(BrokerAddress("owner", 6650))
            assert owner.asked[0].headers["Authorization"] == "Bearer t"


async def test_redirects_end() -> None:
    async with web_server(lambda asked: Answered(b"", 302, {"Location": asked.target})) as server:
        with pytest.raises(TooManyRedirects):
            await lookup(server.url).owner(TOPIC)
        assert len(server.asked) == 20


async def test_a_redirect_that_leaves_tls_is_not_followed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = server_context(authority.issue("broker", "127.0.0.1"))
    async with web_server(lambda _: OWNER) as plain:
        away = Answered(b"", 307, {"Location": plain.url})
        async with web_server(lambda _: away, context) as server:
            with pytest.raises(NotConnected, match="not secured"):
                await lookup(server.url, tls=Tls(authority.trust_file)).owner(TOPIC)
        assert plain.asked == []


async def test_partitions_are_counted() -> None:
    async with web_server(lambda _: Answered({"partitions": 3})) as server:
        assert await lookup(server.url).partitions(TOPIC) == 3
    assert server.asked[0].target == (
        "/admin/v2/persistent/public/default/or%2Fders/partitions?checkAllowAutoCreation=true"
    )


async def test_topics_of_a_namespace_are_listed() -> None:
    async with web_server(lambda _: Answered([TOPIC])) as server:
        asking = lookup(server.url)
        assert await asking.topics("public/default", "non-persistent", "") == ([TOPIC], "")
        assert await asking.watch_topics(1, "public/default", ".*", lambda: None) is None
    assert (
        server.asked[0].target == "/admin/v2/namespaces/public/default/topics?mode=NON_PERSISTENT"
    )


async def test_a_schema_is_what_the_binary_protocol_has() -> None:
    def answer(asked: Asked) -> Answered:
        if asked.path.endswith("/7"):
            data = '{"key":{"type":"string"},"value":""}'
            return Answered({"type": "KEY_VALUE", "data": data, "properties": {"a": "b"}})
        return Answered({"type": "STRING", "data": "", "properties": None})

    async with web_server(answer) as server:
        asking = lookup(server.url)
        newest = await asking.schema(TOPIC)
        assert (newest.type, newest.schema_data, list(newest.properties)) == (1, b"", [])
        old = await asking.schema(TOPIC, struct.pack(">q", 7))
        half = b'{"type":"string"}'
        assert old.type == api.Schema.KeyValue
        assert old.schema_data == struct.pack(">I", len(half)) + half + bytes(4)
        assert [(each.key, each.value) for each in old.properties] == [("a", "b")]
    assert server.asked[0].target == "/admin/v2/schemas/public/default/or%2Fders/schema"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotAuthenticated),
        (403, NotAuthorized),
        (404, TopicNotFound),
        (412, NotAllowed),
        (500, BrokerFailed),
        (503, ServiceNotReady),
    ],
)
async def test_a_status_is_an_error_with_its_reason(status: int, kind: type[ClientError]) -> None:
    async with web_server(lambda _: Answered({"reason": "because"}, status)) as server:
        with pytest.raises(kind, match=f"answers {status}: because"):
            await lookup(server.url).owner(TOPIC)


@pytest.mark.parametrize("body", [b"<html>", [1], "text"])
async def test_an_answer_of_another_kind_is_an_error(body: object) -> None:
    async with web_server(lambda _: Answered(body)) as server:
        asking = lookup(server.url)
        for ask in (asking.owner, asking.partitions, asking.schema):
            with pytest.raises(ClientError, match="JSON"):
                await ask(TOPIC)


async def test_the_next_broker_is_asked_where_one_fails() -> None:
    failing = Answered({"reason": "starting"}, 503)
    async with web_server(lambda _: failing) as bad, web_server(lambda _: OWNER) as good:
        for urls in ((bad.url, good.url), (good.url, bad.url)):
            asking = lookup(*urls)
            for _ in range(3):
                assert await asking.owner(TOPIC) == Route(BrokerAddress("owner", 6650))
        # The one that failed is not asked again, whether it was asked first or second.
        assert (len(bad.asked), len(good.asked)) == (1, 6)


async def test_what_is_no_web_service_is_an_error() -> None:
    async with listening_broker() as broker:
        url = broker.url.replace("pulsar", "http")
        with pytest.raises(NotConnected):
            await lookup(url, timeout_s=0.2).owner(TOPIC)


async def test_a_client_finds_its_broker_over_http() -> None:
    async with listening_broker() as broker:

        def answer(asked: Asked) -> Answered:
            if asked.path.endswith("/partitions"):
                return Answered({"partitions": 0})
            return Answered({"brokerUrl": broker.url})

        async with (
            web_server(answer) as server,
            geminga.connect(server.url) as client,
            client.producer("orders") as producer,
        ):
            await producer.send(b"found")
        assert broker.stored_bodies == [b"found"]
