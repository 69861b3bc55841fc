"""A broker's snapshot as Prometheus text, piece by piece.

The fields of the snapshot name their families; the rest is decided here: labels, sums over topics,
and what is shown by limit or by quota. What other parts of the process count through
``prometheus_client`` is added by the route.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from geminga_broker.compaction.report import CompactionReport
from geminga_broker.metrics.snapshot import (
    SUMMARY_QUANTILES,
    BrokerSnapshot,
    BrokerSum,
    BundleSnapshot,
    CacheSnapshot,
    ConnectionsSnapshot,
    DelayedIndexGauge,
    LoadSnapshot,
    LookupsSnapshot,
    NamespaceSum,
    ReplicatorSnapshot,
    SubscriptionSnapshot,
    TopicSnapshot,
)
from geminga_broker.schemas.counts import NamespaceCounts, Operation
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf
from geminga_server.metrics.exposition import (
    Buckets,
    Counter,
    FieldFamily,
    Gauge,
    Labelled,
    escape,
    families_of,
    gauges,
    lines,
    samples,
    summary_text,
)

# Each tuple is worked out once, at import: the fields' annotations are not read at every scrape.
TOPIC_FAMILIES = families_of(TopicSnapshot, Gauge, Counter)
TOPIC_BUCKETS = families_of(TopicSnapshot, Buckets)
BROKER_SUMS = families_of(TopicSnapshot, BrokerSum)
NAMESPACE_SUMS = families_of(TopicSnapshot, NamespaceSum)
SUBSCRIPTION_FAMILIES = families_of(SubscriptionSnapshot, Gauge, Counter)
# Only of topics and subscriptions that have an index of delayed messages: both have these families.
DELAYED_FAMILIES = families_of(SubscriptionSnapshot, DelayedIndexGauge)
# Only of topics that were compacted, or that a compaction was requested of, since they were loaded.
COMPACTION_FAMILIES = (
    *families_of(CompactionReport, Gauge, Counter),
    FieldFamily(Buckets("pulsar_compaction_latency"), "write_latency_ms"),
)
# Only of topics that are replicated.
REPLICATOR_FAMILIES = families_of(ReplicatorSnapshot, Gauge, Counter)
CACHE_FAMILIES = families_of(CacheSnapshot, Gauge, Counter)
LOAD_FAMILIES = families_of(LoadSnapshot, Gauge, Counter)
BUNDLE_FAMILIES = families_of(BundleSnapshot, Gauge)
LOOKUP_FAMILIES = families_of(LookupsSnapshot, Gauge, Counter)
CONNECTION_FAMILIES = families_of(ConnectionsSnapshot, Gauge, Counter)

# Evictions from a topic's backlog and from all of a broker's: one sample for each quota.
TOPIC_EVICTIONS = "pulsar_storage_backlog_quota_exceeded_evictions_total"
BROKER_EVICTIONS = "pulsar_broker_storage_backlog_quota_exceeded_evictions_total"
# The label ``quota_type``, and the topics' field.
EVICTIONS_BY_QUOTA = (("size", "size_evictions_total"), ("time", "age_evictions_total"))

# Only of subscriptions that a dispatch rate limits: one sample for each limit (label ``reason``).
STALLS = (
    ("pulsar_subscription_dispatch_throttled_msg_events", attrgetter("by_messages")),
    ("pulsar_subscription_dispatch_throttled_bytes_events", attrgetter("by_bytes")),
)

# The counters of the broker's BookKeeper client (named with ``BOOKKEEPER_CLIENT``) are shown with
# this prefix.
LEDGER_CLIENT_PREFIX = "pulsar_managedLedger_client_"
BOOKKEEPER_CLIENT = "bookkeeper_client_"


def render(snapshot: BrokerSnapshot, *, cluster: str, version: str, host: str) -> Iterator[str]:
    """Pieces of text; each family's samples stand together, as the format demands.

    ``host`` is this broker's address, without a port: upstream's label ``broker``.
    """
    # The label that all families begin with. Labels are written in the same order everywhere; a
    # topic's text is built once for its families.
    first = f'cluster="{escape(cluster)}"'
    yield from _broker(snapshot, first, version, escape(host))
    topics = [
        (f'{first},namespace="{escape(each.namespace)}",topic="{escape(each.name)}"', each)
        for each in snapshot.topics
    ]
    yield from _namespaces(topics, first)
    yield from samples(TOPIC_FAMILIES, topics)
    yield from _evictions(TOPIC_EVICTIONS, [(labels, [topic]) for labels, topic in topics])
    yield from samples(TOPIC_BUCKETS, topics)
    compacted = [
        (labels, topic.compaction) for labels, topic in topics if topic.compaction is not None
    ]
    # A family without samples is not named either.
    yield from samples(COMPACTION_FAMILIES if compacted else (), compacted)
    subscriptions = [
        (f'{labels},subscription="{escape(subscription.name)}"', subscription)
        for labels, topic in topics
        for subscription in topic.subscriptions
    ]
    yield from samples(SUBSCRIPTION_FAMILIES, subscriptions)
    # How often dispatch was throttled, of subscriptions with a rate: one sample for each limit.
    throttled = [(labels, each.stalls) for labels, each in subscriptions if each.stalls]
    for name, by_limit in STALLS if throttled else ():
        values = (
            (f'{labels},reason="{limit_of.value}"', by_limit(stalls)[limit_of])
            for labels, stalls in throttled
            for limit_of in LimitOf
        )
        yield from lines(name, "gauge", values)
    replicators = [
        (f'{labels},remote_cluster="{escape(replicator.remote)}"', replicator)
        for labels, topic in topics
        for replicator in topic.replicators
    ]
    yield from samples(REPLICATOR_FAMILIES if replicators else (), replicators)
    # Both have the same families, so that the samples of both have to stand together. Those without
    # an index have no samples: a 0 would read as an empty index.
    delaying: Labelled = [
        *(each for each in topics if each[1].delayed_buckets),
        *(each for each in subscriptions if each[1].delayed_buckets),
    ]
    yield from samples(DELAYED_FAMILIES if delaying else (), delaying)


def _broker(snapshot: BrokerSnapshot, first: str, version: str, host: str) -> Iterator[str]:
    """The families of the broker as a whole."""
    topics, connections = snapshot.topics, snapshot.connections
    counts = {
        # Counted from the snapshot, as all sums here, so that they agree with their terms.
        "pulsar_broker_topics_count": len(topics),
        "pulsar_broker_subscriptions_count": sum(len(each.subscriptions) for each in topics),
        **{each.family.name: _sum(topics, each.field) for each in BROKER_SUMS},
        "geminga_broker_connections_max": connections.connections_max,
    }
    yield gauges(counts, first)
    yield from _evictions(BROKER_EVICTIONS, [(first, topics)])
    yield from _bytes(topics, first)
    for name, summary in (
        ("pulsar_broker_publish_latency", snapshot.publish_latency_ms),
        ("pulsar_broker_lookup", snapshot.lookup_ms),
        ("pulsar_topic_load_times", snapshot.topic_load_ms),
    ):
        yield summary_text(name, summary, first)
    yield from _schemas(snapshot.schemas, first)
    yield gauges({"pulsar_version_info": 1}, f'{first},version="{escape(version)}",commit=""')
    yield from samples(LOOKUP_FAMILIES, [(first, snapshot.lookups)])
    yield from samples(CACHE_FAMILIES, [(first, snapshot.cache)])
    # Those with the name of BookKeeper's client get the prefix; the others are counted here alone,
    # under names of our own.
    for name, count in snapshot.ledger_counts.items():
        is_of_client = name.startswith(BOOKKEEPER_CLIENT)
        full = LEDGER_CLIENT_PREFIX + name if is_of_client else name
        yield from lines(full, "counter", [(first, count)])
    refused = [(f'{first},limit="{limit}"', n) for limit, n in connections.refused.items()]
    yield from lines("geminga_broker_refused_connections_total", "counter", refused)
    # Upstream tells the groups of these families apart by the label ``metric``.
    of_host = f'{first},broker="{host}",metric='
    yield from samples(CONNECTION_FAMILIES, [(f'{of_host}"broker_connection"', connections)])
    # -1 before the first health check.
    health = -1 if snapshot.is_healthy is None else int(snapshot.is_healthy)
    yield gauges({"pulsar_health": health}, f'{of_host}"broker_health"')
    failed = {"pulsar_topic_load_failed_count": snapshot.lookups.topic_loads_failed}
    yield gauges(failed, f'{of_host}"pulsar_topic_load_times"')
    load = snapshot.load
    yield from samples(LOAD_FAMILIES, [(f'{of_host}"loadBalancing"', load)])
    bundles = [
        (f'{first},broker="{host}",bundle="{escape(each.name)}",metric="bundle"', each)
        for each in snapshot.bundles
    ]
    yield from samples(BUNDLE_FAMILIES if bundles else (), bundles)
    # Gauges, as upstream declares them, although they only grow.
    unloaded = {
        "pulsar_lb_unload_broker_total": load.shed_brokers,
        "pulsar_lb_unload_bundle_total": load.moves,
    }
    yield gauges(unloaded, f'{of_host}"bundleUnloading"')
    yield gauges({"pulsar_lb_bundles_split_total": load.splits}, f'{of_host}"bundlesSplit"')


def _schemas(counted: Mapping[str, NamespaceCounts], first: str) -> Iterator[str]:
    """The operations on schemas, and the comparisons of them, by namespace."""
    by_labels = [
        (f'{first},namespace="{escape(namespace)}"', counts)
        for namespace, counts in counted.items()
    ]
    # By operation first: the samples of all namespaces for one family have to stand together.
    for each in Operation if by_labels else ():
        name = f"pulsar_schema_{each.value}_ops"
        heading = ""
        for labels, counts in by_labels:
            summary = counts.durations[each].summary(SUMMARY_QUANTILES)
            text = summary_text(f"{name}_latency", summary, labels)
            # The heading of a family (its TYPE line) may stand only once, before all its samples.
            yield text.removeprefix(heading)
            heading = text[: text.index("\n") + 1]
        failed = ((labels, counts.failed[each]) for labels, counts in by_labels)
        yield from lines(f"{name}_failed_total", "counter", failed)
    for name in ("compatible", "incompatible") if by_labels else ():
        compared = ((labels, getattr(counts, name)) for labels, counts in by_labels)
        yield from lines(f"pulsar_schema_{name}_total", "counter", compared)


def _bytes(topics: Sequence[TopicSnapshot], first: str) -> Iterator[str]:
    """Bytes in and out, of users' topics and of system topics; all count as users' so far."""
    bytes_out = sum(each.bytes_out_total for topic in topics for each in topic.subscriptions)
    for name, label, value in (
        ("pulsar_broker_in_bytes_total", "system_topic", _sum(topics, "bytes_in_total")),
        ("pulsar_broker_out_bytes_total", "system_subscription", bytes_out),
    ):
        # Both labels are shown, so that sums over them have the same members as with upstream.
        by_owner = [(f'{first},{label}="false"', value), (f'{first},{label}="true"', 0)]
        yield from lines(name, "counter", by_owner)


def _namespaces(topics: Sequence[tuple[str, TopicSnapshot]], first: str) -> Iterator[str]:
    """The sums by namespace; ``topics`` come with their labels."""
    by_namespace: dict[str, list[TopicSnapshot]] = {}
    for _, topic in topics:
        # Escaped once for each namespace, and not for each family.
        by_namespace.setdefault(escape(topic.namespace), []).append(topic)
    counts = [
        (f'{first},namespace="{namespace}"', len(members))
        for namespace, members in by_namespace.items()
    ]
    yield from lines("pulsar_topics_count", "gauge", counts)
    subscriptions = [(labels, len(topic.subscriptions)) for labels, topic in topics]
    yield from lines("pulsar_subscriptions_count", "gauge", subscriptions)
    # Upstream calls these after the managed ledgers, which non-persistent topics do not have.
    ledgers = [
        (
            f'{first},namespace="{namespace}/persistent"',
            [topic for topic in members if topic.name.startswith("persistent://")],
        )
        for namespace, members in by_namespace.items()
    ]
    for each in NAMESPACE_SUMS:
        sums = [(labels, _sum(members, each.field)) for labels, members in ledgers if members]
        yield from lines(each.family.name, "gauge", sums)


def _evictions(name: str, labelled: Sequence[tuple[str, Sequence[TopicSnapshot]]]) -> Iterator[str]:
    """Evictions from backlogs: for each group of topics one sample per quota."""
    values = (
        (f'{labels},quota_type="{quota_type}"', _sum(topics, field))
        for labels, topics in labelled
        for quota_type, field in EVICTIONS_BY_QUOTA
    )
    yield from lines(name, "counter", values)


def _sum(topics: Sequence[TopicSnapshot], field: str) -> float:
    """The sum of one field over topics."""
    total: float = sum(map(attrgetter(field), topics))
    return total
