"""The registration of live brokers with their load, their leader, and what the leader remembers.

Facts: ``LocalBrokerData``, ``LeaderBroker``, ``TimeAverageBrokerData`` and ``BundleData`` of Apache
Pulsar, as its modular load manager writes them. A broker's id is ``host:port`` of its HTTP address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from geminga_protocol.records.encodings.json_records import JsonRecord

#
#     /loadbalance/brokers/HOST:PORT              LocalBrokerData          ephemeral
#     /loadbalance/leader                         LeaderBroker             ephemeral
#     /loadbalance/broker-time-average/HOST:PORT  TimeAverageBrokerData
#     /loadbalance/bundle-data/TENANT/NS/0xA_0xB  BundleData
#
# Ephemeral nodes: one for each live broker, and one of the leader.
BROKERS_PATH = "/loadbalance/brokers"
LEADER_PATH = "/loadbalance/leader"
# Persistent nodes, which the leader writes and a new leader reads.
TIME_AVERAGES_PATH = "/loadbalance/broker-time-average"
BUNDLE_DATA_PATH = "/loadbalance/bundle-data"

# Java brokers check these two before they interpret the rest.
LOAD_MANAGER_CLASS = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
LOAD_REPORT_TYPE = "LocalBrokerData"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage(JsonRecord):
    """The usage of one resource. A limit of 0 or less means that it is unknown."""

    usage: float = 0.0
    limit: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvertisedListener(JsonRecord):
    """The addresses of one named listener."""

    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    broker_http_url: str | None = None
    broker_https_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleStats(JsonRecord):
    """The load of one bundle: rates in messages and bytes a second, counts, cache in bytes."""

    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    consumer_count: int = 0
    producer_count: int = 0
    topics: int = 0
    cache_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBrokerData(JsonRecord):
    """A live broker: its addresses, and its load, by which the leader assigns bundles."""

    web_service_url: str | None = None
    web_service_url_tls: str | None = None
    pulsar_service_url: str | None = None
    pulsar_service_url_tls: str | None = None
    persistent_topics_enabled: bool = True
    non_persistent_topics_enabled: bool = True
    # CPU in percent of one core, memory in MiB, bandwidth in KiB a second.
    cpu: ResourceUsage = field(default_factory=ResourceUsage)
    memory: ResourceUsage = field(default_factory=ResourceUsage)
    direct_memory: ResourceUsage = field(default_factory=ResourceUsage)
    bandwidth_in: ResourceUsage = field(default_factory=ResourceUsage)
    bandwidth_out: ResourceUsage = field(default_factory=ResourceUsage)
    # Throughput in bytes a second, rates in messages a second.
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    # Unix milliseconds.
    last_update: int = 0
    # The load of each bundle, by its full name.
    last_stats: Mapping[str, BundleStats] = field(default_factory=dict)
    num_topics: int = 0
    num_bundles: int = 0
    num_consumers: int = 0
    num_producers: int = 0
    # Full names of the bundles that the broker owns, and of those that it got and lost since its
    # report before.
    bundles: tuple[str, ...] = ()
    last_bundle_gains: tuple[str, ...] = ()
    last_bundle_losses: tuple[str, ...] = ()
    broker_version_string: str | None = None
    # Of protocol handlers (such as Kafka's on Pulsar): their addresses, by name.
    protocols: Mapping[str, str] = field(default_factory=dict)
    advertised_listeners: Mapping[str, AdvertisedListener] = field(default_factory=dict)
    load_manager_class_name: str | None = LOAD_MANAGER_CLASS
    # Unix milliseconds.
    start_timestamp: int = 0
    max_resource_usage: float = 0.0
    load_report_type: str = LOAD_REPORT_TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderBroker(JsonRecord):
    """The broker that leads."""

    broker_id: str | None = None
    service_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAverageBrokerData(JsonRecord):
    """A broker's rates averaged over the last minutes and hours: messages and bytes a second."""

    short_term_msg_throughput_in: float = 0.0
    short_term_msg_throughput_out: float = 0.0
    short_term_msg_rate_in: float = 0.0
    short_term_msg_rate_out: float = 0.0
    long_term_msg_throughput_in: float = 0.0
    long_term_msg_throughput_out: float = 0.0
    long_term_msg_rate_in: float = 0.0
    long_term_msg_rate_out: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAverages(JsonRecord):
    """Rates of a bundle in messages and bytes a second, averaged over its last reports."""

    # How many reports the average covers at most, and how many arrived so far.

    max_samples: int = 0
    num_samples: int = 0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleData(JsonRecord):
    """The load of a bundle as the leader remembers it, independent of the bundle's owner."""

    short_term_data: MessageAverages = field(default_factory=MessageAverages)
    long_term_data: MessageAverages = field(default_factory=MessageAverages)
    topics: int = 0


def broker_path(broker_id: str) -> str:
    """The node of a live broker."""
    return f"{BROKERS_PATH}/{broker_id}"


def time_average_path(broker_id: str) -> str:
    """The node of a broker's averages, which outlives the broker."""
    return f"{TIME_AVERAGES_PATH}/{broker_id}"


def bundle_data_path(bundle: str) -> str:
    """The node of a bundle's ``BundleData``; ``bundle`` is ``tenant/namespace/0x…_0x…``."""
    return f"{BUNDLE_DATA_PATH}/{bundle}"
