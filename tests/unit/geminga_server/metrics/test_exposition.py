"""Proves that what a snapshot's fields say of themselves becomes Prometheus text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from prometheus_client.parser import text_string_to_metric_families

from geminga_server.metrics import Durations, Histogram
from geminga_server.metrics.exposition import (
    Buckets,
    Counter,
    Gauge,
    escape,
    families_of,
    samples,
    summary_text,
)


@dataclass
class Snapshot:
    """Of a shop."""

    customers: Annotated[int, Gauge("shop_customers")] = 3
    sold: Annotated[int, Counter("shop_sold_total")] = 40
    is_open: Annotated[bool, Gauge("shop_open")] = True
    hidden: int = 7
    waits: Annotated[Histogram, Buckets("shop_waits")] = field(
        default_factory=lambda: Histogram((0.5, 10))
    )


def test_fields_are_shown_in_their_order_under_their_names_and_kinds() -> None:
    families = families_of(Snapshot, Gauge, Counter)
    assert [each.field for each in families] == ["customers", "sold", "is_open"]
    text = "".join(samples(families, [('shop="a"', Snapshot()), ('shop="b"', Snapshot(sold=41))]))
    shown = {each.name: each for each in text_string_to_metric_families(text)}
    assert {name: each.type for name, each in shown.items()} == {
        "shop_customers": "gauge",
        "shop_sold": "counter",
        "shop_open": "gauge",
    }
    assert [(each.labels, each.value) for each in shown["shop_sold"].samples] == [
        ({"shop": "a"}, 40),
        ({"shop": "b"}, 41),
    ]
    assert shown["shop_open"].samples[0].value == 1


def test_a_histogram_is_a_gauge_for_each_bucket() -> None:
    snapshot = Snapshot()
    snapshot.waits.add(0.5, 2)
    snapshot.waits.add(11)
    text = "".join(samples(families_of(Snapshot, Buckets), [("", snapshot)]))
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "shop_waits_le_0_5{} 2",
        "shop_waits_le_10{} 0",
        "shop_waits_overflow{} 1",
        "shop_waits_count{} 3",
        "shop_waits_sum{} 12.0",
    ]


def test_a_summary_of_what_never_happened_has_no_quantiles() -> None:
    text = summary_text("shop_service", Durations().summary((0.5,)), 'shop="a"')
    assert 'shop_service{shop="a",quantile="0.5"} NaN\n' in text
    assert 'shop_service_count{shop="a"} 0\n' in text


def test_what_ends_a_label_is_escaped() -> None:
    assert escape('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
