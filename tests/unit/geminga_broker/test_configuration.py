"""The settings have upstream's names and units: as a real broker of Pulsar's showed its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.project_files import GOLDEN

from geminga_broker.config import BrokerConfig
from geminga_broker.configuration import runtime_configuration
from geminga_broker.managed_ledger.config import INDEX_INTERCEPTOR
from geminga_server.config import settings_of
from geminga_server.config.loading import load_config

RECORDED = GOLDEN / "admin" / "broker-configuration.json"
THEIRS: dict[str, str] = json.loads(RECORDED.read_text())["configuration/runtime"]
# Where the defaults differ, or the recorded broker stood elsewhere.
DIFFERENT = {
    "acknowledgmentAtBatchIndexLevelEnabled": "on here always",
    "webSocketServiceEnabled": "not here",
    "dispatcherMaxReadSizeBytes": "reads of bookies are bounded by bytes first",
    "dispatcherMaxReadBatchSize": "as above",
    "subscriptionTypesEnabled": "a set, in any order",
    "metadataStoreSessionTimeoutMillis": "a standalone's parts miss each other sooner",
    "managedLedgerCacheSizeMB": "theirs is a part of the machine's memory",
    "activeConsumerFailoverDelayTimeMillis": "off here",
    "metadataStoreUrl": "they kept metadata in a file",
    "loadBalancerEnabled": "theirs was a standalone",
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle": "moves are limited by bundles, too",
    "loadBalancerSheddingConditionHitCountThreshold": "a hot bundle moves within two intervals",
    "maxUnloadBundleNumPerShedding": "theirs is -1, without a limit",
    "tlsHostnameVerificationEnabled": "on here: a certificate is for a host",
    "brokerServicePort": "another port",
    "webServicePort": "another port",
    "brokerMaxConnections": "theirs is 0, without a limit; ours follows from the open files",
}


def configuration(**changes: object) -> dict[str, str]:
    """What a broker tells of its settings that was given ``changes``, by name."""
    flags = {"port": 6651, "web_port": 8081, "connections_max": 17_000, **changes}
    config = load_config(BrokerConfig, "broker", environment={}, flags=flags)
    return runtime_configuration(config)


def test_every_name_is_upstreams() -> None:
    assert configuration().keys() <= THEIRS.keys()


def test_defaults_are_upstreams_to_the_letter_but_for_those_that_differ() -> None:
    ours = configuration()
    differing = {name for name, value in ours.items() if value != THEIRS[name]}
    assert differing == DIFFERENT.keys()
    assert set(ours["subscriptionTypesEnabled"]) == set(THEIRS["subscriptionTypesEnabled"])


def test_no_two_settings_have_one_name() -> None:
    names = [each.upstream.name for each in settings_of(BrokerConfig).values() if each.upstream]
    assert len(set(names)) == len(names) > 80


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"log.retention_time_ms": -1}, "defaultRetentionTimeInMinutes", "-1"),
        ({"cache_age_max_s": 0.5}, "managedLedgerCacheEvictionTimeThresholdMillis", "500"),
        ({"keepalive_s": 0.25}, "keepAliveIntervalSeconds", "0.25"),
        ({"auto_topic_partitions": 3}, "allowAutoTopicCreationType", "partitioned"),
        ({"auto_topic_partitions": 3}, "defaultNumPartitions", "3"),
        (
            {"broker_entry_metadata_interceptors": (INDEX_INTERCEPTOR,)},
            "brokerEntryMetadataInterceptors",
            f"[{INDEX_INTERCEPTOR}]",
        ),
        ({"zookeeper": "zk1:2181,zk2:2181/c"}, "metadataStoreUrl", "zk:zk1:2181,zk2:2181/c"),
        ({"configuration_store": "zk:s:1/c"}, "configurationMetadataStoreUrl", "zk:s:1/c"),
        ({"configuration_store": "127.0.0.1:2181"}, "configurationMetadataStoreUrl", ""),
        ({}, "brokerServicePort", "Optional[6651]"),
        ({}, "brokerMaxConnections", "17000"),
    ],
)
def test_values_are_in_upstreams_units_and_words(
    changes: dict[str, Any], name: str, value: str
) -> None:
    assert configuration(**changes)[name] == value
