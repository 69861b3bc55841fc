"""Proves what is read out of CONNECT about who is there."""

from __future__ import annotations

import pytest

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.connect import Forwarded, method_name


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (api.CommandConnect(), "none"),
        (api.CommandConnect(auth_method=api.AuthMethodNone), "none"),
        (api.CommandConnect(auth_method=api.AuthMethodYcaV1), "ycav1"),
        (api.CommandConnect(auth_method=api.AuthMethodAthens), "athens"),
        (api.CommandConnect(auth_method_name="token"), "token"),
        (api.CommandConnect(auth_method=api.AuthMethodAthens, auth_method_name="tls"), "tls"),
    ],
)
def test_the_method_is_named_by_name_or_by_the_old_enum(
    command: api.CommandConnect, expected: str
) -> None:
    assert method_name(command) == expected


def test_a_client_without_a_proxy_forwards_nothing() -> None:
    command = api.CommandConnect(client_version="c", auth_method_name="token", auth_data=b"x")
    assert Forwarded.of(command) is None


@pytest.mark.parametrize(
    "field",
    [
        "proxy_version",
        "proxy_to_broker_url",
        "original_principal",
        "original_auth_method",
        "original_auth_data",
    ],
)
def test_each_field_of_a_proxy_is_kept(field: str) -> None:
    forwarded = Forwarded.of(api.CommandConnect(**{field: "said"}))  # type: ignore[arg-type]
    assert forwarded is not None
    assert {name: getattr(forwarded, name) for name in Forwarded.__slots__} == dict.fromkeys(
        Forwarded.__slots__, ""
    ) | {field: "said"}


def test_what_was_forwarded_can_be_logged_without_the_secret() -> None:
    forwarded = Forwarded.of(api.CommandConnect(proxy_version="4", original_auth_data="secret"))
    assert "secret" not in repr(forwarded)
