"""Listeners and bind addresses are read as upstream reads them, and refused where they could
serve no client. What upstream does was asked of a real Pulsar 4.0.6: `golden/records`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.project_files import GOLDEN

from geminga_broker.ownership.addresses.address import BrokerAddress, owner_at
from geminga_broker.ownership.addresses.listeners import (
    BindAddress,
    Listeners,
    parse_bind_addresses,
    parse_listeners,
)

RECORDED = GOLDEN / "records" / "listeners.jsonl"
INSIDE, OUTSIDE = "internal:pulsar://broker:6650", "external:pulsar://localhost:6650"


def recorded(kind: str) -> dict[str, Any]:
    """The first recorded row of that kind."""
    rows = map(json.loads, RECORDED.read_text().splitlines())
    return next(row for row in rows if row["kind"] == kind)


def recorded_listeners() -> Listeners:
    return parse_listeners(recorded("settings")["advertisedListeners"].split(","))


def test_the_records_of_a_real_brokers_listeners_are_made() -> None:
    owner = json.loads(recorded("owner")["text"])
    made = {name: record.encode() for name, record in recorded_listeners().records.items()}
    assert made == {
        name: json.dumps(urls, separators=(",", ":")).encode()
        for name, urls in owner["advertisedListeners"].items()
    }
    assert list(made) == list(owner["advertisedListeners"])


def test_clients_that_name_no_listener_get_the_internal_url_or_the_first_of_that_scheme() -> None:
    owner = json.loads(recorded("owner")["text"])
    listeners = recorded_listeners()
    assert listeners.url("pulsar") == owner["nativeUrl"]
    assert listeners.url("http") == owner["httpUrl"]
    assert listeners.url("pulsar+ssl") == owner["nativeUrlTls"]  # only a third listener has one
    assert listeners.url("https") == ""


@pytest.mark.parametrize(("named", "internal"), [("", "internal"), ("external", "external")])
def test_the_first_listener_is_the_internal_one_unless_another_is_named(
    named: str, internal: str
) -> None:
    assert parse_listeners([INSIDE, OUTSIDE], named).internal == internal


def test_a_broker_without_listeners_has_none() -> None:
    assert parse_listeners([], "internal").records == {}
    assert parse_listeners([]).internal_host == ""


@pytest.mark.parametrize(
    ("entries", "internal", "reason"),
    [
        (["pulsar://broker:6650"], "", "is not NAME:SCHEME://HOST:PORT"),
        (["internal:kafka://broker:9092"], "", "the schemes are pulsar, pulsar.ssl, http, https"),
        (["internal:pulsar://broker"], "", "is not NAME:"),
        (["internal:pulsar://broker:65536"], "", "is not NAME:"),
        (["internal:pulsar://[::1:6650"], "", "is not NAME:"),
        (["internal:pulsar://broker:6650/path"], "", "is not NAME:"),
        ([":pulsar://broker:6650"], "", "is not NAME:"),
        ([INSIDE, "internal:pulsar://other:6650"], "", "two URLs pulsar://"),
        ([INSIDE, "external:http://broker:6650"], "", "belongs to two listeners"),
        ([INSIDE], "external", "external is none of the advertised listeners .internal."),
    ],
)
def test_listeners_that_no_client_can_use_are_refused(
    entries: list[str], internal: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_listeners(entries, internal)


def test_a_bind_address_is_for_its_listener() -> None:
    listeners = parse_listeners([INSIDE, OUTSIDE])
    entries = ["external:pulsar://0.0.0.0:16650", " external : http://[::]:18080"]
    assert parse_bind_addresses(entries, listeners) == (
        BindAddress("external", "pulsar", "0.0.0.0", 16650),
        BindAddress("external", "http", "::", 18080),
    )


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("elsewhere:pulsar://0.0.0.0:6651", "which advertised_listeners does not list"),
        ("external:pulsar://0.0.0.0", "is not NAME:SCHEME://HOST:PORT"),
        ("16650", "is not NAME:SCHEME://HOST:PORT"),
    ],
)
def test_a_bind_address_that_cannot_be_served_is_refused(entry: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_bind_addresses([entry], parse_listeners([INSIDE, OUTSIDE]))


@pytest.mark.parametrize(
    ("listener", "scheme", "url"),
    [
        ("", "http", "http://inside:8080"),
        ("", "https", "https://inside:8443"),
        ("external", "http", "http://outside:8080"),
        ("external", "https", "https://outside:8443"),
        ("secured", "http", "https://other:8443"),
        ("pulsar-only", "https", "https://inside:8443"),
    ],
)
def test_a_request_is_sent_on_with_its_scheme_where_the_owner_serves_that(
    listener: str, scheme: str, url: str
) -> None:
    listeners = parse_listeners(
        (
            "external:http://outside:8080",
            "external:https://outside:8443",
            "secured:https://other:8443",
            "pulsar-only:pulsar://outside:6650",
        )
    )
    address = BrokerAddress(
        broker_id="inside:8080",
        broker_url="pulsar://inside:6650",
        http_url="http://inside:8080",
        http_url_tls="https://inside:8443",
        listeners=listeners.records,
    )
    owner = owner_at(address, is_self=False)
    assert owner.web_url(listener, is_tls=scheme == "https") == url
