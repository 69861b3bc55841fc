"""Proves that a proxy connects clients to brokers only, however a client names something else."""

from __future__ import annotations

import pytest

from geminga_proxy.addresses.targets import Target, TargetRules
from geminga_proxy.errors import TargetRefused

ANY = TargetRules(("*",), frozenset())
BROKER = Target("broker-1.internal", 6650)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("broker-1.internal:6650", BROKER),
        ("Broker-1.Internal:6650", BROKER),
        ("pulsar://broker-1.internal:6650", BROKER),
        ("pulsar+ssl://broker-1.internal:6651/", Target("broker-1.internal", 6651)),
        ("broker-1.internal", BROKER),
        ("[::1]:7000", Target("::1", 7000)),
    ],
)
def test_clients_name_brokers_with_or_without_a_scheme(text: str, target: Target) -> None:
    assert Target.parse(text) == target
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":6650",
        "host:port",
        "host:70000",
        "u@host:1",
        "host:1/x",
        "host:1?x",
        "[::1:1",
        "h" * 400,
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(TargetRefused):
        Target.parse(text)


def test_only_living_brokers_are_targets_where_they_are_known() -> None:
    ANY.check(BROKER, [BROKER])
    with pytest.raises(TargetRefused, match="no living broker"):
        ANY.check(Target("broker-1.internal", 22), [BROKER])
    with pytest.raises(TargetRefused, match="no living broker"):
        ANY.check(BROKER, [])


def test_hosts_and_ports_decide_where_the_living_brokers_are_not_known() -> None:
    rules = TargetRules(("*.internal", "10.0.0.?"), frozenset({6650}))
    rules.check(BROKER, None)
    rules.check(Target("10.0.0.7", 6650), None)
    with pytest.raises(TargetRefused, match="its host"):
        rules.check(Target("metadata.example", 6650), None)
    with pytest.raises(TargetRefused, match="its port"):
        rules.check(Target("broker-1.internal", 22), None)


def test_hosts_and_ports_restrict_living_brokers_too() -> None:
    with pytest.raises(TargetRefused, match="its host"):
        TargetRules(("other",), frozenset()).check(BROKER, [BROKER])
