"""The metrics text has Pulsar's names and labels, and parses as Prometheus text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.project_files import GOLDEN

from geminga_broker.compaction.report import CompactionReport, CompactionStatus
from geminga_broker.managed_ledger.writing.write_latency import WRITE_LATENCY_BOUNDS_MS
from geminga_broker.metrics import snapshot as snapshot_module
from geminga_broker.metrics.exposition import (
    BROKER_SUMS,
    CACHE_FAMILIES,
    CONNECTION_FAMILIES,
    DELAYED_FAMILIES,
    LOOKUP_FAMILIES,
    NAMESPACE_SUMS,
    SUBSCRIPTION_FAMILIES,
    TOPIC_BUCKETS,
    TOPIC_FAMILIES,
    render,
)
from geminga_broker.metrics.snapshot import (
    BrokerSnapshot,
    BundleSnapshot,
    ConnectionsSnapshot,
    LoadSnapshot,
    ReplicatorSnapshot,
    SubscriptionSnapshot,
    TopicSnapshot,
)
from geminga_broker.schemas.counts import NamespaceCounts, Operation
from geminga_broker.subscriptions.dispatch.dispatch_throttle import Stalls
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf
from geminga_server.connection_limits import Limit
from geminga_server.metrics.exposition import SAMPLES_PER_PIECE

RECORDED = GOLDEN / "admin" / "metric-families.json"
REFERENCE: dict[str, list[str]] = json.loads(RECORDED.read_text())

# Of the topic and broker families, what only later work can count.
NOT_YET = re.compile(
    "pulsar_(txn|resource_group|web_executor|metadata_store)|"
    "pulsar_ml_(cursor|cache_p|reads)|"
    "pulsar_ml_.*(Buckets|WithReplicas)|pulsar_topic_load_(time|rate)|pulsar_delayed_message_index_"
    "(bucket|loaded)|pulsar_storage_backlog_quota_check|_created$|pulsar_broker_load|"
    # What is not done yet (filters, offloading, limits on connections) ...
    "filter_|offloaded|broker_throttled_connections|"
    # ... and what is not counted yet.
    "pulsar_entry_size|storage_ledger_write_latency|pending_bytes_to_dispatch|"
    "pulsar_ml_(AddEntry(Succeed|Errors)|ReadEntries(BytesRate|Succeeded|Errors)|MarkDelete)"
)


def topic(name: str = "persistent://public/default/t", **values: float) -> TopicSnapshot:
    snapshot = TopicSnapshot(namespace="public/default", name=name)
    for field, value in values.items():
        setattr(snapshot, field, value)
    snapshot.subscriptions = [SubscriptionSnapshot(name="s", bytes_out_total=7)]
    return snapshot


def text(*topics: TopicSnapshot) -> str:
    snapshot = BrokerSnapshot(topics=list(topics), schemas={"a/b": NamespaceCounts()})
    return "".join(render(snapshot, cluster="c", version="1.2.3", host="127.0.0.1"))


def families(*topics: TopicSnapshot) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text(*topics))}


def samples(name: str, *topics: TopicSnapshot) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in families(*topics).values()
        for sample in family.samples
        if sample.name == name
    ]


def test_every_family_of_a_real_broker_is_here_that_we_can_fill() -> None:
    full = topic()
    full.compaction = CompactionReport(CompactionStatus.SUCCESS)
    full.subscriptions[0].stalls = Stalls()
    ours = {sample.name for family in families(full).values() for sample in family.samples}
    missing = {name for name in REFERENCE if not NOT_YET.search(name)} - ours
    assert missing == set()


def test_labels_are_upstreams_in_upstreams_order() -> None:
    for line in text(topic()).splitlines():
        found = re.match(r"(\w+)\{(.*)\} ", line)
        if found and found[1] in REFERENCE:
            labels = ",".join(re.findall(r'(\w+)="', found[2]))
            assert labels in REFERENCE[found[1]], line


def test_each_family_stands_together() -> None:
    names = re.findall(r"^# TYPE (\w+) ", text(topic("a://1"), topic("a://2")), re.MULTILINE)
    assert len(names) == len(set(names))


def test_a_topics_figures_are_its_own() -> None:
    one, two = topic("persistent://a/b/1", rate_in=1.5), topic("persistent://a/b/2", rate_in=2.5)
    assert [value for _, value in samples("pulsar_rate_in", one, two)] == [1.5, 2.5]
    assert samples("pulsar_broker_rate_in", one, two) == [({"cluster": "c"}, 4.0)]


def test_refused_connections_are_counted_by_the_limit_that_they_exceeded() -> None:
    connections = ConnectionsSnapshot(connections_max=7, refused={Limit.ALL: 3, Limit.ADDRESS: 1})
    snapshot = BrokerSnapshot(connections=connections)
    lines = "".join(render(snapshot, cluster="c", version="1", host="h")).splitlines()
    assert 'geminga_broker_connections_max{cluster="c"} 7' in lines
    assert 'geminga_broker_refused_connections_total{cluster="c",limit="all"} 3' in lines
    assert 'geminga_broker_refused_connections_total{cluster="c",limit="address"} 1' in lines


def test_topics_are_counted_by_namespace() -> None:
    other = topic()
    other.namespace = "acme/shop"
    counts = samples("pulsar_topics_count", topic(), topic(), other)
    assert counts == [
        ({"cluster": "c", "namespace": "public/default"}, 2.0),
        ({"cluster": "c", "namespace": "acme/shop"}, 1.0),
    ]


def test_non_persistent_topics_have_no_managed_ledger() -> None:
    assert samples("pulsar_ml_AddEntryBytesRate", topic("non-persistent://a/b/c")) == []


def test_buckets_are_not_cumulative() -> None:
    snapshot = topic()
    snapshot.write_latency_ms.counts = list(range(len(WRITE_LATENCY_BOUNDS_MS) + 1))
    assert samples("pulsar_storage_write_latency_le_0_5", snapshot)[0][1] == 0
    assert samples("pulsar_storage_write_latency_overflow", snapshot)[0][1] == 9


def test_how_long_compaction_writes_is_shown_of_those_that_were_compacted() -> None:
    plain, compacted = topic("persistent://a/b/1"), topic("persistent://a/b/2")
    compacted.compaction = report = CompactionReport(CompactionStatus.SUCCESS)
    report.wrote(3, duration_ms=4.0)
    name = "pulsar_compaction_latency"
    assert [value for _, value in samples(f"{name}_count", plain, compacted)] == [0]
    report.renew()
    assert [value for _, value in samples(f"{name}_le_5", plain, compacted)] == [3]
    assert [value for _, value in samples(f"{name}_sum", plain, compacted)] == [12]
    report.renew()
    assert [value for _, value in samples(f"{name}_count", plain, compacted)] == [0]


def test_who_was_held_back_is_shown_with_the_reason_where_there_is_a_limit() -> None:
    free, slow = topic("persistent://a/b/1"), topic("persistent://a/b/2")
    slow.subscriptions[0].stalls = stalls = Stalls()
    stalls.by_messages.update({LimitOf.TOPIC: 1, LimitOf.BROKER: 1})
    stalls.by_bytes[LimitOf.BROKER] = 1
    found = {
        kind: {
            labels["reason"]: value
            for labels, value in samples(
                f"pulsar_subscription_dispatch_throttled_{kind}_events", free, slow
            )
        }
        for kind in ("msg", "bytes")
    }
    assert found == {
        "msg": {"broker": 1, "topic": 1, "subscription": 0},
        "bytes": {"broker": 1, "topic": 0, "subscription": 0},
    }


def test_a_claim_is_shown_as_a_number() -> None:
    snapshot = topic()
    snapshot.subscriptions[0].is_blocked_on_unacked = True
    assert samples("pulsar_subscription_blocked_on_unacked_messages", snapshot)[0][1] == 1


@pytest.mark.parametrize("name", ['persistent://a/b/"quoted"', "persistent://a/b/back\\slash\n"])
def test_any_topic_name_is_escaped(name: str) -> None:
    ((labels, _),) = samples("pulsar_rate_in", topic(name))
    assert labels["topic"] == name


def test_a_broker_without_topics_shows_itself() -> None:
    assert samples("pulsar_broker_topics_count") == [({"cluster": "c"}, 0)]
    assert samples("pulsar_health")[0][1] == -1


def test_pieces_are_short_enough_to_let_others_run() -> None:
    topics = [topic(f"persistent://a/b/{number}") for number in range(3 * SAMPLES_PER_PIECE)]
    snapshot = BrokerSnapshot(topics=topics)
    pieces = render(snapshot, cluster="c", version="1", host="h")
    assert max(piece.count("\n") for piece in pieces) <= SAMPLES_PER_PIECE


def test_buckets_of_delayed_messages_are_shown_of_topics_that_have_any() -> None:
    plain, delaying = topic("persistent://a/b/1"), topic("persistent://a/b/2", delayed_buckets=3)
    delaying.subscriptions[0].delayed_buckets = 3
    delaying.subscriptions[0].delayed_loaded = 7
    name = "pulsar_delayed_message_index_bucket_total"
    found = samples(name, plain, delaying)
    assert [(labels.get("subscription"), value) for labels, value in found] == [(None, 3), ("s", 3)]
    assert {labels["topic"] for labels, _ in found} == {"persistent://a/b/2"}
    assert families(plain, delaying)[name].type == "gauge"
    loaded = samples("pulsar_delayed_message_index_loaded", plain, delaying)
    assert [value for _, value in loaded] == [0, 7]
    assert samples(name, plain) == []


def test_every_family_that_is_shown_is_set_by_some_part() -> None:
    """Each is taken from a field that something outside of the snapshots sets."""
    sources = Path(snapshot_module.__file__).parents[1]
    setters = "".join(
        path.read_text()
        for path in sources.rglob("*.py")
        if path.name not in ("snapshot.py", "exposition.py")
    )
    families = (
        *TOPIC_FAMILIES,
        *SUBSCRIPTION_FAMILIES,
        *LOOKUP_FAMILIES,
        *CONNECTION_FAMILIES,
        *CACHE_FAMILIES,
        *TOPIC_BUCKETS,
        *DELAYED_FAMILIES,
        *BROKER_SUMS,
        *NAMESPACE_SUMS,
    )
    unset = {each.field for each in families if not re.search(rf"\b{each.field}\b ?[=,]", setters)}
    assert unset == set()


def test_schemas_are_counted_by_namespace_under_one_heading() -> None:
    counts = NamespaceCounts(compatible=3, incompatible=2)
    counts.durations[Operation.PUT].add(7, 5)
    counts.failed[Operation.PUT] = 1
    snapshot = BrokerSnapshot(schemas={"a/b": counts, "a/c": NamespaceCounts()})
    shown = "".join(render(snapshot, cluster="c", version="1.2.3", host="127.0.0.1"))
    assert shown.count("# TYPE pulsar_schema_put_ops_latency summary") == 1
    found = {
        (sample.name, sample.labels["namespace"]): sample.value
        for family in text_string_to_metric_families(shown)
        for sample in family.samples
        if sample.name.startswith("pulsar_schema") and "quantile" not in sample.labels
    }
    assert found["pulsar_schema_put_ops_latency_count", "a/b"] == 5
    assert found["pulsar_schema_put_ops_latency_sum", "a/b"] == 35
    assert found["pulsar_schema_put_ops_failed_total", "a/b"] == 1
    assert found["pulsar_schema_compatible_total", "a/b"] == 3
    assert found["pulsar_schema_incompatible_total", "a/b"] == 2
    assert found["pulsar_schema_put_ops_latency_count", "a/c"] == 0


def test_what_the_load_manager_did_is_shown_under_upstreams_names() -> None:
    load = LoadSnapshot(cpu_percent=12.5, memory_percent=3.0, moves=7, shed_brokers=2, splits=1)
    text = "".join(render(BrokerSnapshot(load=load), cluster="c", version="4.0.6", host="h"))
    labels = 'cluster="c",broker="h",metric='
    assert f'pulsar_lb_cpu_usage{{{labels}"loadBalancing"}} 12.5\n' in text
    assert f'pulsar_lb_memory_usage{{{labels}"loadBalancing"}} 3.0\n' in text
    assert f'pulsar_lb_unload_bundle_total{{{labels}"bundleUnloading"}} 7\n' in text
    assert f'pulsar_lb_unload_broker_total{{{labels}"bundleUnloading"}} 2\n' in text
    assert f'pulsar_lb_bundles_split_total{{{labels}"bundlesSplit"}} 1\n' in text


def test_bundles_are_shown_under_upstreams_names() -> None:
    bundle = BundleSnapshot(
        name="t/n/0x00000000_0x40000000",
        msg_rate_in=1.5,
        msg_rate_out=2.5,
        msg_throughput_in=3.5,
        msg_throughput_out=4.5,
        topics=5,
        consumers=6,
        producers=7,
    )
    snapshot = BrokerSnapshot(bundles=[bundle])
    text = "".join(render(snapshot, cluster="c", version="4.0.6", host="h"))
    labels = 'cluster="c",broker="h",bundle="t/n/0x00000000_0x40000000",metric="bundle"'
    found = {
        line.removeprefix("pulsar_bundle_").partition("{")[0]: line.rpartition(" ")[2]
        for line in text.splitlines()
        if line.startswith("pulsar_bundle_") and labels in line
    }
    assert found == {
        "msg_rate_in": "1.5",
        "msg_rate_out": "2.5",
        "msg_throughput_in": "3.5",
        "msg_throughput_out": "4.5",
        "topics_count": "5",
        "consumer_count": "6",
        "producer_count": "7",
    }
    assert "pulsar_bundle_" not in "".join(
        render(BrokerSnapshot(), cluster="c", version="4.0.6", host="h")
    )


def test_replicators_have_the_labels_of_their_remote_clusters_where_there_are_any() -> None:
    assert not any("replication" in name for name in families(topic()))
    replicated = topic("persistent://public/default/r")
    replicated.replicators = [
        ReplicatorSnapshot(remote="west", backlog=3, connected=1),
        ReplicatorSnapshot(remote="north", backlog=9, disconnected=1, stalls_total=2),
    ]
    labels = {"cluster": "c", "namespace": "public/default", "topic": replicated.name}
    assert samples("pulsar_replication_backlog", topic(), replicated) == [
        ({**labels, "remote_cluster": "west"}, 3),
        ({**labels, "remote_cluster": "north"}, 9),
    ]
    shown = {name for name in families(replicated) if "replication" in name}
    of_upstream = {
        f"pulsar_replication_{name}"
        for name in (
            *("rate_in", "rate_out", "throughput_in", "throughput_out", "backlog"),
            *("rate_expired", "connected_count", "disconnected_count", "delay_in_seconds"),
        )
    }
    assert shown == {*of_upstream, "geminga_replication_stalls"}
