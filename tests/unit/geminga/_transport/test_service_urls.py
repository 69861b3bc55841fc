"""Proves that service URLs are read as Pulsar's clients read them."""

from __future__ import annotations

import pytest

from geminga import InvalidServiceUrl
from geminga._transport.service_urls import (
    DEFAULT_PORTS,
    WEB_DEFAULT_PORTS,
    BrokerAddress,
    Route,
    parse_service_url,
)


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsar://a:1", [("a", 1)]),
        ("pulsar://a", [("a", 6650)]),
        ("pulsar://a:1/", [("a", 1)]),
        ("pulsar://a:1,b,c:3", [("a", 1), ("b", 6650), ("c", 3)]),
        ("pulsar://[::1]:1", [("::1", 1)]),
        ("pulsar://127.0.0.1:6650", [("127.0.0.1", 6650)]),
    ],
)
def test_a_service_url_names_brokers(url: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_service_url(url) == tuple(BrokerAddress(*address) for address in addresses)


def test_a_service_url_with_tls_has_a_port_of_its_own() -> None:
    first, second = parse_service_url("pulsar+ssl://a,b:1")
    assert first == BrokerAddress("a", 6651, is_tls=True)
    assert second == BrokerAddress("b", 1, is_tls=True)


@pytest.mark.parametrize(
    ("url", "web_urls"),
    [
        ("http://a:8080", ("http://a:8080",)),
        ("http://a,[::1]:2/", ("http://a:80", "http://[::1]:2")),
        ("https://a", ("https://a:443",)),
    ],
)
def test_a_service_url_may_name_web_services(url: str, web_urls: tuple[str, ...]) -> None:
    found = parse_service_url(url, WEB_DEFAULT_PORTS)
    scheme = url.partition(":")[0]
    assert tuple(f"{scheme}://{each}" for each in found) == web_urls
    assert found[0].is_tls == url.startswith("https")
    with pytest.raises(InvalidServiceUrl, match=r"none of pulsar://, .*ssl://$"):  # no broker's
        parse_service_url(url)


def test_a_url_of_another_scheme_is_answered_with_the_schemes_there_are() -> None:
    with pytest.raises(InvalidServiceUrl, match=r"none of pulsar://, .*, http://, https://$"):
        parse_service_url("localhost:6650", DEFAULT_PORTS | WEB_DEFAULT_PORTS)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a:1",
        "http://a:1",
        "pulsar+tls://a:1",
        "pulsar://",
        "pulsar://a:x",
        "pulsar://a:99999",
        "pulsar://a,,b",
        "pulsar://a/b",
        "pulsar://u@a:1",
        "pulsar://a?b",
        "pulsar://[::1",
    ],
)
def test_what_is_no_service_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidServiceUrl):
        parse_service_url(url)


def test_an_address_is_written_as_it_is_dialled() -> None:
    assert str(BrokerAddress("a", 1)) == "a:1"
    assert str(BrokerAddress("::1", 1)) == "[::1]:1"


def test_a_broker_that_another_one_names_is_reached_in_the_same_way() -> None:
    direct = Route(BrokerAddress("a", 1))
    assert direct.to("pulsar://b:2") == Route(BrokerAddress("b", 2))
    proxied = Route(BrokerAddress("proxy", 1), proxy_target="a:1")
    assert proxied.to("pulsar://b:2") == Route(BrokerAddress("proxy", 1), proxy_target="b:2")
    with pytest.raises(InvalidServiceUrl):
        direct.to("b:2")
