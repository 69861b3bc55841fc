"""A bookie is found at the address it gave, also by its id alone if it is an old one."""

from __future__ import annotations

import pytest

from geminga_protocol.records.bookies.bookie_info import BookieInfo, Endpoint, is_bookie_id
from geminga_protocol.records.errors import MalformedRecord


def test_a_bookie_with_a_stable_id_is_found_at_its_address() -> None:
    value = BookieInfo.of_address("10.0.0.7", 3181).encode()
    assert BookieInfo.decode(value, "bookie-7").address == ("10.0.0.7", 3181)


def test_all_endpoints_and_properties_come_back() -> None:
    info = BookieInfo(
        endpoints=(
            Endpoint(id="http", host="h", port=8000, protocol="http"),
            Endpoint(
                id="bookie",
                host="h",
                port=3181,
                protocol="bookie-rpc",
                auth=("basic", "tls"),
                extensions=("x",),
            ),
        ),
        properties={"z": "1", "a": "2"},
    )
    assert BookieInfo.decode(info.encode(), "b") == info
    assert info.address == ("h", 3181)


def test_a_bookie_without_the_protocol_has_no_address() -> None:
    info = BookieInfo(endpoints=(Endpoint(id="http", host="h", port=8000, protocol="http"),))
    assert info.address is None


def test_the_bytes_do_not_depend_on_the_order_of_properties() -> None:
    one = BookieInfo(endpoints=(), properties={"a": "1", "b": "2"})
    other = BookieInfo(endpoints=(), properties={"b": "2", "a": "1"})
    assert one.encode() == other.encode()


def test_an_old_bookie_is_at_the_address_that_is_its_id() -> None:
    assert BookieInfo.decode(b"", "host.example.org:3181").address == ("host.example.org", 3181)


@pytest.mark.parametrize(
    "bookie_id", ["bookie-7", ":3181", "host:", "host:port", "host:³", "host:" + "1" * 5_000]
)
def test_an_empty_record_under_an_id_that_is_no_address_is_refused(bookie_id: str) -> None:
    with pytest.raises(MalformedRecord):
        BookieInfo.decode(b"", bookie_id)


@pytest.mark.parametrize("name", ["127.0.0.1:3181", "bookie-7", "a_b.c", "A"])
def test_names_that_bookkeeper_takes_are_bookie_ids(name: str) -> None:
    assert is_bookie_id(name)


@pytest.mark.parametrize("name", ["", "readonly", "ReadOnly", "a/b", "a b", "ä", "a\n"])
def test_names_that_bookkeeper_refuses_are_no_bookie_ids(name: str) -> None:
    assert not is_bookie_id(name)


def test_a_bookie_may_say_where_its_http_is() -> None:
    info = BookieInfo.of_address("b1.example", 3181, http_port=8000)
    assert info.address == ("b1.example", 3181)
    assert info.http_address == ("b1.example", 8000)
    assert BookieInfo.decode(info.encode(), "b1").http_address == ("b1.example", 8000)
    assert BookieInfo.of_address("b1.example", 3181).http_address is None
