"""Proves that a proxy knows the living brokers, and goes on with those it saw last while ZooKeeper
is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from geminga_protocol.records.cluster.brokers import (
    AdvertisedListener,
    LocalBrokerData,
    broker_path,
)
from geminga_proxy.addresses.broker_view import BrokerView
from geminga_proxy.addresses.targets import Target
from geminga_proxy.brokers import ListedBrokers, RegisteredBrokers
from geminga_proxy.config import BrokerTlsConfig, ProxyConfig
from geminga_runtime.coordination import Coordination
from geminga_server.errors import ConfigError

ONE = LocalBrokerData(
    web_service_url="http://one:8080",
    pulsar_service_url="pulsar://one:6650",
    pulsar_service_url_tls="pulsar+ssl://one:6651",
    advertised_listeners={
        "external": AdvertisedListener(broker_service_url="pulsar://public:7000"),
        "odd": AdvertisedListener(broker_service_url="pulsar://odd:port"),
    },
)
TWO = LocalBrokerData(web_service_url="http://two:8080", pulsar_service_url="pulsar://two:6650")


async def register(session: Coordination, name: str, record: LocalBrokerData) -> None:
    await session.create(
        broker_path(f"{name}:8080"), record.encode(), ephemeral=True, make_parents=True
    )


def test_every_plain_address_of_a_broker_is_a_target() -> None:
    view = BrokerView.of_records([ONE, TWO])
    assert view.service_urls == ("pulsar://one:6650", "pulsar://two:6650")
    assert view.web_urls == ("http://one:8080", "http://two:8080")
    one = Target("one", 6650), Target("public", 7000)
    assert view.targets == frozenset((*one, Target("two", 6650)))


def test_with_tls_only_addresses_with_tls_are_known() -> None:
    view = BrokerView.of_records([ONE, TWO], is_tls=True)
    target = Target("one", 6651)
    assert view == BrokerView(("pulsar+ssl://one:6651",), (), frozenset({target}))
    config = ProxyConfig(
        broker_service_url="pulsar://one:1",
        broker_service_url_tls="pulsar+ssl://one",
        broker_web_service_url_tls="https://one",
        broker_tls=BrokerTlsConfig(enabled=True),
    )
    assert ListedBrokers(config).view == BrokerView(("pulsar+ssl://one",), ("https://one",))
    assert Target.parse("pulsar+ssl://one") == target


async def test_brokers_are_seen_when_they_come_and_go(
    coordination: Coordination, session: Callable[[str], Coordination]
) -> None:
    async with RegisteredBrokers(coordination) as brokers:
        assert brokers.view == BrokerView(targets=frozenset())
        await register(session("one"), "one", ONE)
        await asyncio.sleep(0.5)
        assert brokers.view.service_urls == ("pulsar://one:6650",)
        await register(session("two"), "two", TWO)
        await asyncio.sleep(0.5)
        assert brokers.view == BrokerView.of_records([ONE, TWO])
        await session("one").delete(broker_path("one:8080"))
        await asyncio.sleep(0.5)
        assert brokers.view == BrokerView.of_records([TWO])


async def test_the_last_view_holds_while_zookeeper_is_away(
    coordination: Coordination,
    session: Callable[[str], Coordination],
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
) -> None:
    await register(session("one"), "one", ONE)
    own = session("proxy")
    del coordination
    async with RegisteredBrokers(own) as brokers:
        await suspend("proxy")
        await register(session("two"), "two", TWO)
        await asyncio.sleep(60)  # its session has long ended
        assert brokers.view == BrokerView.of_records([ONE])
        await reconnect("proxy")
        await asyncio.sleep(10)
        assert brokers.view == BrokerView.of_records([ONE, TWO])


async def test_a_proxy_may_start_before_zookeeper_answers(
    session: Callable[[str], Coordination],
    suspend: Callable[[str], Awaitable[None]],
    reconnect: Callable[[str], Awaitable[None]],
    settle: Callable[[], Awaitable[None]],
) -> None:
    await register(session("one"), "one", ONE)
    own = session("proxy")
    await settle()
    await suspend("proxy")
    async with RegisteredBrokers(own) as brokers:
        assert brokers.view.service_urls == ()
        await reconnect("proxy")
        await asyncio.sleep(10)
        assert brokers.view == BrokerView.of_records([ONE])


async def test_a_broker_whose_record_cannot_be_read_is_left_out(
    coordination: Coordination, session: Callable[[str], Coordination]
) -> None:
    await register(session("one"), "one", ONE)
    await coordination.create(broker_path("bad:8080"), b"{", make_parents=True)
    async with RegisteredBrokers(coordination) as brokers:
        assert brokers.view == BrokerView.of_records([ONE])


def test_brokers_may_be_listed_instead() -> None:
    config = ProxyConfig(
        broker_service_url="pulsar://a:1,b:2/", broker_web_service_url="http://a:8080"
    )
    view = ListedBrokers(config).view
    assert view.service_urls == ("pulsar://a:1", "pulsar://b:2")
    assert view.web_urls == ("http://a:8080",)
    assert view.targets is None


@pytest.mark.parametrize("url", ["a:1", "pulsar://", "pulsar://a:1,"])
def test_what_is_no_list_of_brokers_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        ListedBrokers(ProxyConfig(broker_service_url=url))
