"""Proves that what a broker is told has the names people know, and its bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from geminga_broker.config import BrokerConfig
from geminga_broker.configuration import runtime_configuration
from geminga_broker.managed_ledger.config import INDEX_INTERCEPTOR, TIME_INTERCEPTOR
from geminga_broker.managed_ledger.writing.broker_entry_metadata import BrokerEntryFields
from geminga_broker.ownership.addresses.address import Owner
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError
from geminga_server.tls.config import TlsConfig

# A setting of each group: its name, a value for it, and where the broker finds it.
FILE = """
[broker]
cluster = "c1"
max_message_bytes = 2048
cache_watermark = 0.5
auto_topic_creation = false
backlog_quota_policy = "producer_exception"
max_unacked_messages_per_consumer = 5
force_deletes_tenants = true
close_budget_s = 1.5
[broker.log]
ensemble_size = 3
[broker.publishing]
deduplication = true
[broker.compaction]
threshold_bytes = 6
[broker.delayed]
tick_ms = 7
[broker.expiry]
ttl_default_s = 8
[broker.subscribing]
types_enabled = ["Shared"]
[broker.inactivity]
deletes_topics = false
[broker.dispatching]
counts_batches = true
"""


def test_every_group_is_found_under_the_names_that_people_know(tmp_path: Path) -> None:
    file = tmp_path / "geminga.toml"
    file.write_text(FILE, encoding="utf-8")
    config = load_config(BrokerConfig, "broker", file=file, environment={})
    policies = config.policies
    assert config.cluster == "c1"
    assert config.sessions.max_message_bytes == 2048
    assert config.cache.cache_watermark == 0.5
    assert config.admin.force_deletes_tenants
    assert config.topics.close_budget_s == 1.5
    assert not policies.auto_creation.auto_topic_creation
    assert policies.backlog.backlog_quota_policy == "producer_exception"
    assert policies.unacknowledged.max_unacked_messages_per_consumer == 5
    assert policies.log.ensemble_size == 3
    assert policies.publishing.deduplication
    assert policies.compaction.threshold_bytes == 6
    assert policies.delayed.tick_ms == 7
    assert policies.expiry.ttl_default_s == 8
    assert policies.subscribing.types_enabled == ("Shared",)
    assert not policies.inactivity.deletes_topics
    assert policies.dispatching.counts_batches


@pytest.mark.parametrize(("advertised", "told"), [("", "10.0.0.1"), ("broker.example", None)])
def test_clients_are_told_the_bind_address_unless_another_is_advertised(
    advertised: str, told: str | None
) -> None:
    config = BrokerConfig(bind_address="10.0.0.1", advertised_address=advertised)
    assert config.advertised_host == (told or advertised)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "65536"),
        ("keepalive_s", "0"),
        ("max_message_bytes", "1"),
        ("close_budget_s", "-1"),
        ("log.ensemble_size", "0"),
        ("log.retention_bytes", "-2"),
        ("backlog_quota_policy", "sometimes"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        load_config(BrokerConfig, "broker", file=None, flags={name: value}, environment={})


def test_stamps_are_turned_on_by_upstreams_names_and_by_no_other() -> None:
    variable = "GEMINGA_BROKER_BROKER_ENTRY_METADATA_INTERCEPTORS"

    def stamps_of(names: str) -> BrokerEntryFields:
        config = load_config(BrokerConfig, "broker", environment={variable: names})
        return BrokerEntryFields.of(config.broker_entry_metadata_interceptors)

    assert BrokerEntryFields.of(()) == stamps_of("") == BrokerEntryFields()
    assert stamps_of(TIME_INTERCEPTOR) == BrokerEntryFields(time=True)
    assert stamps_of(f"{TIME_INTERCEPTOR},{INDEX_INTERCEPTOR}") == BrokerEntryFields(
        time=True, index=True
    )
    with pytest.raises(ConfigError, match=f"should be '{TIME_INTERCEPTOR}'"):
        stamps_of("com.example.Mine")


LISTENERS = {
    "GEMINGA_BROKER_ADVERTISED_LISTENERS": "internal:pulsar://broker:6650,"
    "internal:http://broker:8080,external:pulsar://localhost:7650",
    "GEMINGA_BROKER_BIND_ADDRESSES": "external:pulsar://0.0.0.0:16650",
}


def config_of(environment: dict[str, str]) -> BrokerConfig:
    """What a broker with these variables is told, whose own port is 6650 everywhere."""
    variables = {"GEMINGA_BROKER_BIND_ADDRESS": "0.0.0.0", **environment}
    return load_config(BrokerConfig, "broker", environment=variables)


def test_listeners_are_set_by_variables() -> None:
    config = config_of(LISTENERS)
    assert config.address.broker_url == "pulsar://broker:6650"
    assert config.address.http_url == "http://broker:8080"
    assert config.address.listeners["external"].broker_service_url == "pulsar://localhost:7650"
    assert [bind.port for bind in config.listeners.binds] == [16650]
    named = config_of({**LISTENERS, "GEMINGA_BROKER_INTERNAL_LISTENER_NAME": "external"})
    assert named.address.broker_url == "pulsar://localhost:7650"


def test_brokers_that_listen_everywhere_are_called_after_their_internal_listener() -> None:
    assert config_of(LISTENERS).address.broker_id == "broker:8080"
    advertised = {**LISTENERS, "GEMINGA_BROKER_ADVERTISED_ADDRESS": "broker1"}
    assert config_of(advertised).address.broker_id == "broker1:8080"


CERTIFICATE = {"GEMINGA_BROKER_TLS__CERTIFICATE_FILE": "/etc/geminga/tls/broker.pem"}


def test_tls_is_advertised_where_there_is_a_certificate() -> None:
    plain = config_of({"GEMINGA_BROKER_ADVERTISED_ADDRESS": "broker1"})
    assert (plain.address.broker_url_tls, plain.address.http_url_tls) == ("", "")
    assert list(plain.ports) == ["port", "web_port"]
    config = config_of({"GEMINGA_BROKER_ADVERTISED_ADDRESS": "broker1", **CERTIFICATE})
    assert config.address.broker_url_tls == "pulsar+ssl://broker1:6651"
    assert config.address.http_url_tls == "https://broker1:8443"
    assert [(bind.scheme, bind.port) for bind in config.binds] == [
        ("pulsar", 6650),
        ("http", 8080),
        ("pulsar+ssl", 6651),
        ("https", 8443),
    ]


def test_the_internal_listener_has_the_brokers_own_tls_address_unless_it_names_one() -> None:
    config = config_of({**LISTENERS, **CERTIFICATE})
    assert config.address.broker_url_tls == "pulsar+ssl://broker:6651"
    advertised = LISTENERS["GEMINGA_BROKER_ADVERTISED_LISTENERS"]
    named = {"GEMINGA_BROKER_ADVERTISED_LISTENERS": f"{advertised},internal:pulsar+ssl://b:7651"}
    assert config_of({**CERTIFICATE, **named}).address.broker_url_tls == "pulsar+ssl://b:7651"


def test_bind_addresses_with_tls_are_served_where_there_is_a_certificate() -> None:
    bound = {"GEMINGA_BROKER_BIND_ADDRESSES": "external:pulsar+ssl://0.0.0.0:16651"}
    config = config_of({**LISTENERS, **bound, **CERTIFICATE})
    assert (config.binds[-1].listener, config.binds[-1].is_tls) == ("external", True)


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("ADVERTISED_LISTENERS", "localhost:6650", "advertised_listeners: 'localhost:6650' is not"),
        ("INTERNAL_LISTENER_NAME", "inside", "inside is none of the advertised listeners"),
        ("BIND_ADDRESSES", "external:pulsar+ssl://0.0.0.0:6651", "wants TLS, for which tls"),
    ],
)
def test_listeners_that_no_client_can_use_are_a_wrong_setting(
    variable: str, value: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        config_of({**LISTENERS, f"GEMINGA_BROKER_{variable}": value})


def test_a_broker_that_serves_tls_alone_is_known_by_its_port_of_https() -> None:
    tls = TlsConfig(certificate_file="broker.pem")
    config = BrokerConfig(bind_address="10.0.0.1", tls=tls, tls_only=True)
    assert dict(config.ports) == {"port_tls": 6651, "web_port_tls": 8443}
    assert [each.scheme for each in config.binds] == ["pulsar+ssl", "https"]
    address = config.address
    assert address.broker_id == "10.0.0.1:8443"
    assert (address.broker_url, address.http_url) == ("", "")
    assert address.broker_url_tls == "pulsar+ssl://10.0.0.1:6651"
    assert address.rest_url == address.http_url_tls == "https://10.0.0.1:8443"
    told = runtime_configuration(config)
    assert (told["brokerServicePort"], told["webServicePort"]) == ("Optional.empty",) * 2
    assert told["webServicePortTls"] == "Optional[8443]"
    with pytest.raises(ValueError, match="certificate_file is missing"):
        BrokerConfig(tls_only=True)


@pytest.mark.parametrize(("is_tls", "url"), [(False, "http://a:1"), (True, "https://a:2")])
def test_a_broker_is_asked_with_tls_where_that_is_wanted_or_all_it_serves(
    is_tls: bool,  # noqa: FBT001 - a parameter of the test
    url: str,
) -> None:
    owner = Owner("", "", "http://a:1", "https://a:2", is_self=False)
    assert owner.rest_url(is_tls=is_tls) == url
    assert replace(owner, http_url="").rest_url(is_tls=is_tls) == "https://a:2"
    assert replace(owner, http_url_tls="").rest_url(is_tls=is_tls) == "http://a:1"
