"""Proves that a real Pulsar takes how the client connects: TLS, authentication, HTTP, a proxy."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.compat.apache_pulsar import PASSWORD, ApachePulsar, token

import geminga
from geminga import Authentication, NotAuthenticated, Tls, TlsFailed


async def round_trip(
    url: str, topic: str, *, tls: Tls | None = None, who: Authentication | None = None
) -> None:
    """Publish a message and receive it."""
    async with geminga.connect(url, tls=tls, authentication=who) as client:
        consumer = await client.consumer(topic, "s", initial_position="earliest")
        async with client.producer(topic) as producer:
            await producer.send(b"there and back")
        message = await consumer.receive()
        assert message.data == b"there and back"
        await consumer.ack_confirmed(message)


URLS: dict[str, Callable[[ApachePulsar], str]] = {
    "plain": lambda pulsar: pulsar.service_url,
    "tls": lambda pulsar: pulsar.service_url_tls,
    "http": lambda pulsar: pulsar.web_url,
    "https": lambda pulsar: pulsar.web_url_tls,
    "proxy": lambda pulsar: pulsar.proxy_url,
    "two-hosts": lambda pulsar: f"pulsar://127.0.0.1:1,{pulsar.service_url[9:]}",
}


@pytest.mark.parametrize("way", URLS)
async def test_messages_with_a_token(pulsar: ApachePulsar, way: str) -> None:
    url = URLS[way](pulsar)
    is_secured = url.startswith(("pulsar+ssl", "https"))
    tls = Tls(pulsar.authority.trust_file) if is_secured else None
    who = geminga.Token(lambda: token("admin"))
    await round_trip(url, f"token-{way}", tls=tls, who=who)


async def test_messages_with_a_password(pulsar: ApachePulsar) -> None:
    who = geminga.Basic("basic-user", PASSWORD)
    await round_trip(pulsar.service_url, "basic", who=who)
    await round_trip(pulsar.web_url, "basic-http", who=who)


async def test_messages_with_a_certificate(pulsar: ApachePulsar) -> None:
    mine = pulsar.authority.issue("tls-user", "tls-user.example")
    tls = Tls(pulsar.authority.trust_file, certificate_file=mine)
    await round_trip(pulsar.service_url_tls, "mutual", tls=tls, who=geminga.MutualTls())
    await round_trip(pulsar.web_url_tls, "mutual-https", tls=tls, who=geminga.MutualTls())


@pytest.mark.parametrize("way", ["plain", "http"])
@pytest.mark.parametrize("who", [None, geminga.Token("wrong"), geminga.Basic("basic-user", "no")])
async def test_others_are_refused(
    pulsar: ApachePulsar, way: str, who: Authentication | None
) -> None:
    with pytest.raises(NotAuthenticated):
        await round_trip(URLS[way](pulsar), "refused", who=who)


async def test_a_broker_that_is_not_trusted_is_refused(pulsar: ApachePulsar) -> None:
    for url in (pulsar.service_url_tls, pulsar.web_url_tls):
        with pytest.raises(TlsFailed, match="trust_file"):
            await round_trip(url, "untrusted", who=geminga.Token(token("admin")))


async def test_schemas_and_patterns_over_http(pulsar: ApachePulsar) -> None:
    pair = geminga.KeyValueSchema(geminga.StringSchema(), geminga.Int32Schema(), "INLINE")
    who = geminga.Token(token("admin"))
    async with geminga.connect(pulsar.web_url, authentication=who) as client:
        async with client.producer("http-pairs", schema=pair) as producer:
            await producer.send(("a", 1))
        async with client.consumer(
            re.compile("http-pairs.*"),
            "s",
            schema=geminga.AutoConsumeSchema(),
            initial_position="earliest",
        ) as consumer:
            assert tuple((await consumer.receive()).value) == ("a", 1)
