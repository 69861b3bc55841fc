"""Proves how ZooKeeper's answer to `mntr` becomes Prometheus text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga_cli.embedded_zookeeper.metrics import prometheus_text

MNTR = b"""zk_version\t3.9.5-293c895a, built on 2026-02-11 20:18 UTC
zk_server_state\tstandalone
zk_znode_count\t156
zk_avg_latency\t0.5
zk_max_latency\t12
zk_cnt_updatelatency\t4
zk_sum_updatelatency\t10
zk_avg_updatelatency\t2.5
zk_min_updatelatency\t1
zk_max_updatelatency\t5
zk_p50_updatelatency\t2
zk_p999_updatelatency\t5
"""


def test_gauges_keep_the_names_of_zookeepers_own_exporter() -> None:
    text = prometheus_text(MNTR)
    assert "# TYPE znode_count gauge\nznode_count 156\n" in text
    assert "avg_latency 0.5\n" in text
    assert "max_latency 12\n" in text


def test_a_summary_becomes_count_sum_and_quantiles() -> None:
    text = prometheus_text(MNTR)
    assert (
        "# TYPE updatelatency summary\n"
        'updatelatency{quantile="0.5"} 2\n'
        'updatelatency{quantile="0.999"} 5\n'
        "updatelatency_count 4\n"
        "updatelatency_sum 10\n"
    ) in text
    assert "avg_updatelatency" not in text


def test_what_is_no_number_is_left_out() -> None:
    text = prometheus_text(MNTR)
    assert "version" not in text
    assert "server_state" not in text


def test_names_that_prometheus_would_refuse_are_left_out() -> None:
    assert prometheus_text(b"zk_a b\t1\nzk_\t2\nno tab\n\xff\t3\n") == ""


@given(st.binary(max_size=200))
def test_no_answer_makes_it_fail(answer: bytes) -> None:
    prometheus_text(b"zk_cnt_x\t1\n" + answer)
