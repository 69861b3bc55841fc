"""Where brokers are reached: this broker's own address, and the address of a bundle's owner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """This broker's id (``host:web port``) and URLs; an empty URL means "not served"."""

    broker_id: str
    broker_url: str
    http_url: str
    broker_url_tls: str = ""
    http_url_tls: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who serves a bundle, as a lookup tells it. An empty URL means "not served"."""

    broker_url: str
    broker_url_tls: str
    http_url: str
    http_url_tls: str
    is_self: bool


def owner_at(address: BrokerAddress, *, is_self: bool) -> Owner:
    """The broker at ``address`` as an owner."""
    return Owner(
        address.broker_url,
        address.broker_url_tls,
        address.http_url,
        address.http_url_tls,
        is_self,
    )


def broker_id_of_url(http_url: str) -> str:
    """``"http://127.0.0.1:8080"`` → ``"127.0.0.1:8080"``: the id of the broker behind a URL."""
    return http_url.partition("://")[2].rstrip("/")
