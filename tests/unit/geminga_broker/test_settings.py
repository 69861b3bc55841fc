"""Proves that what a broker is told reaches its core, whole."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from geminga_broker.log.entry_stamps import StampKinds
from geminga_broker.metadata.auto_creation import AUTO_CREATION_DEFAULT, AutoCreation
from geminga_broker.options import INDEX_STAMP, TIME_STAMP, BrokerOptions
from geminga_broker.settings import BrokerSettings
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError

# What the core gets from elsewhere (ports that were chosen, hosts, what it claims to be), and what
# is made of several settings, in tests of their own.
NOT_SET = {"port", "web_port", "bind_host", "advertised_host", "version"} | {
    *("listeners", "bind_addresses")
}
DEFAULTS = BrokerOptions()
SET = sorted({each.name for each in fields(BrokerOptions)} - NOT_SET - {"log"})


def other_than(value: object) -> object:
    """A value of the same type that is not the default."""
    match value:
        case float():
            return value * 0.5
        case int():
            return value * 2
        case str():
            return "another"
        case _:
            return ("another",)


@pytest.mark.parametrize("name", SET)
def test_every_option_of_the_core_can_be_set(name: str) -> None:
    wanted = other_than(getattr(DEFAULTS, name))
    changes: dict[str, Any] = {name: wanted}
    settings = replace(BrokerSettings(), **changes)
    assert getattr(settings.options(port=1, web_port=2), name) == wanted


def test_the_core_is_told_the_ports_that_were_chosen() -> None:
    options = BrokerSettings(port=0, web_port=0).options(port=1, web_port=2)
    assert (options.port, options.web_port) == (1, 2)


@pytest.mark.parametrize(("advertised", "told"), [("", "10.0.0.1"), ("broker.example", None)])
def test_clients_are_told_the_bind_address_unless_another_is_advertised(
    advertised: str, told: str | None
) -> None:
    settings = BrokerSettings(bind_address="10.0.0.1", advertised_address=advertised)
    assert settings.options(port=1, web_port=2).advertised_host == (told or advertised)


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", "65536"), ("keepalive_s", "0"), ("max_message_bytes", "1"), ("close_budget_s", "-1")],
)
def test_a_value_out_of_bounds_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        load_config(BrokerSettings, "broker", file=None, flags={name: value}, environment={})


def test_whether_topics_are_made_by_being_used_is_a_setting() -> None:
    assert BrokerSettings().options(port=1, web_port=2).auto_creation == AUTO_CREATION_DEFAULT
    settings = BrokerSettings(auto_topic_creation=False, auto_topic_partitions=4)
    rule = settings.options(port=1, web_port=2).auto_creation
    assert rule == AutoCreation(is_allowed=False, partitions=4)


def test_stamps_are_turned_on_by_upstreams_names_and_by_no_other() -> None:
    variable = "GEMINGA_BROKER_BROKER_ENTRY_METADATA_INTERCEPTORS"

    def stamps_of(names: str) -> StampKinds:
        settings = load_config(BrokerSettings, "broker", environment={variable: names})
        return settings.options(port=1, web_port=2).stamps

    assert BrokerOptions().stamps == stamps_of("") == StampKinds()
    assert stamps_of(TIME_STAMP) == StampKinds(time=True)
    assert stamps_of(f"{TIME_STAMP},{INDEX_STAMP}") == StampKinds(time=True, index=True)
    with pytest.raises(ConfigError, match=f"should be '{TIME_STAMP}'"):
        stamps_of("com.example.Mine")


LISTENERS = {
    "GEMINGA_BROKER_ADVERTISED_LISTENERS": "internal:pulsar://broker:6650,"
    "internal:http://broker:8080,external:pulsar://localhost:7650",
    "GEMINGA_BROKER_BIND_ADDRESSES": "external:pulsar://0.0.0.0:16650",
}


def options_of(environment: dict[str, str]) -> BrokerOptions:
    """What a broker with these variables is told, whose own port is 6650 everywhere."""
    variables = {"GEMINGA_BROKER_BIND_ADDRESS": "0.0.0.0", **environment}
    settings = load_config(BrokerSettings, "broker", environment=variables)
    return settings.options(port=6650, web_port=8080)


def test_listeners_are_set_by_variables() -> None:
    options = options_of(LISTENERS)
    assert options.address.broker_url == "pulsar://broker:6650"
    assert options.address.http_url == "http://broker:8080"
    assert options.address.listeners["external"].broker_service_url == "pulsar://localhost:7650"
    assert [bind.port for bind in options.bind_addresses] == [16650]
    named = options_of({**LISTENERS, "GEMINGA_BROKER_INTERNAL_LISTENER_NAME": "external"})
    assert named.address.broker_url == "pulsar://localhost:7650"


def test_brokers_that_listen_everywhere_are_called_after_their_internal_listener() -> None:
    assert options_of(LISTENERS).address.broker_id == "broker:8080"
    advertised = {**LISTENERS, "GEMINGA_BROKER_ADVERTISED_ADDRESS": "broker1"}
    assert options_of(advertised).address.broker_id == "broker1:8080"


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("ADVERTISED_LISTENERS", "localhost:6650", "advertised_listeners: 'localhost:6650' is not"),
        ("INTERNAL_LISTENER_NAME", "inside", "inside is none of the advertised listeners"),
        ("BIND_ADDRESSES", "external:pulsar+ssl://0.0.0.0:6651", "wants TLS"),
    ],
)
def test_listeners_that_serve_nobody_are_a_wrong_setting(
    variable: str, value: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        options_of({**LISTENERS, f"GEMINGA_BROKER_{variable}": value})
