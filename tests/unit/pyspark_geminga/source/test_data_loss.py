"""What was deleted before a stream read it fails the query, and nothing else counts as lost."""

from __future__ import annotations

import pytest
from tests.unit.pyspark_geminga.source.test_stream_planner import (
    A,
    B,
    FakeCluster,
    FakeLog,
    Query,
    everything,
)

from geminga import LogPosition
from pyspark_geminga.errors import DataLost
from pyspark_geminga.source.reading import Part
from pyspark_geminga.source.stream_planner import Limit


@pytest.mark.parametrize("is_read", [True, False])
def test_a_ledger_that_is_deleted_is_a_loss_only_if_it_was_not_read(is_read: bool) -> None:  # noqa: FBT001
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert query.batch()
    if not is_read:
        cluster.logs[A].add()
    cluster.logs[A].roll()
    if is_read:
        assert not query.batch()  # the planner sees where the ledger ended
    cluster.logs[A].trim()
    cluster.logs[A].add()
    if is_read:
        assert query.batch()
        assert query.read[-1] == (A, LogPosition(2, 0))
    else:
        with pytest.raises(DataLost, match=r"read up to \(1, 2, -1\), but the topic begins at"):
            query.batch()


def test_a_ledger_that_was_read_may_be_closed_and_deleted_between_two_looks() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert query.batch()
    assert not query.batch()
    cluster.logs[A].roll()
    cluster.logs[A].add(1, 1)
    cluster.logs[A].trim()
    assert query.batch()
    assert query.read[-2:] == [(A, LogPosition(2, 0)), (A, LogPosition(2, 1))]


def test_a_batch_that_is_repeated_does_not_need_the_ledger_that_the_one_before_it_ended() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert query.batch()
    cluster.logs[A].roll()
    cluster.logs[A].add(1)
    assert query.plan()
    # Spark commits the batch before, so that its ledger goes; then the driver dies.
    cluster.logs[A].trim()
    query.restart()
    query.run()
    assert query.read[-1] == (A, LogPosition(2, 0))


def test_a_quiet_topic_does_not_need_the_ledger_that_was_read_to_its_end() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert query.batch()
    cluster.logs[A].roll()
    cluster.logs[B].add(1)
    assert query.batch()
    cluster.logs[A].trim()
    cluster.logs[A].add(1)
    query.restart()
    assert query.batch()
    assert query.read[-1] == (A, LogPosition(2, 0))


def test_without_a_rest_side_a_ledger_that_is_gone_counts_as_lost() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    cluster.has_rest = False
    query = Query(cluster, cluster.planner())
    assert query.batch()
    cluster.logs[A].add(1)
    cluster.logs[A].roll()
    cluster.logs[A].add(1)
    cluster.logs[A].trim()
    with pytest.raises(DataLost, match=r"read up to \(1, 2, -1\), but the topic begins at \(2, 0"):
        query.batch()
    query.restart(failOnDataLoss="false")
    assert query.batch()
    assert query.read[-1] == (A, LogPosition(2, 0))


def test_without_a_rest_side_a_ledger_that_was_read_to_its_end_may_go_once_that_was_seen() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    cluster.has_rest = False
    query = Query(cluster, cluster.planner())
    assert query.batch()
    cluster.logs[A].roll()
    cluster.logs[A].add(1, 1)
    cluster.logs[A].roll()
    cluster.logs[A].add(1)
    assert query.plan()
    del cluster.logs[A].ledgers[1]  # released by the commit of the batch before
    query.restart()
    parts = query.planner.parts(query.planner.initial_offset(), query.start)
    assert [part for part in parts if part.topic == A] == [
        Part(A, LogPosition(2, 0), LogPosition(3, 1), is_known=False, holds_start=True)
    ]
    query.run()
    del cluster.logs[A].ledgers[2]
    assert not query.batch()
    query.restart()
    cluster.logs[A].add(1)
    assert query.batch()
    assert query.read[-2:] == [(A, LogPosition(3, 0)), (A, LogPosition(3, 1))]


def test_where_loss_is_allowed_the_first_message_that_is_left_is_read() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1, 1]}), b=FakeLog())
    query = Query(cluster, cluster.planner(failOnDataLoss="false"))
    cluster.logs[A].roll()
    assert query.plan()
    cluster.logs[A].trim()
    cluster.logs[A].add()
    query.restart(failOnDataLoss="false")
    query.run()
    assert query.read == []
    assert query.batch()
    assert query.read == [(A, LogPosition(2, 0))]


def test_gaps_in_ids_are_no_loss() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1], 4: [], 9: [1]}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    while query.batch(Limit(rows=1)):
        pass
    assert query.read == everything(cluster)


def test_a_topic_that_is_deleted_fails_the_query() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1]}), b=FakeLog())
    query = Query(cluster, cluster.planner())
    assert query.batch()
    del cluster.logs[A]
    with pytest.raises(DataLost, match="the topic is gone"):
        query.batch()


def test_where_loss_is_allowed_a_topic_that_is_made_again_is_read_from_its_first_message() -> None:
    cluster = FakeCluster(a=FakeLog({1: [1]}), b=FakeLog())
    query = Query(cluster, cluster.planner(failOnDataLoss="false"))
    assert query.batch()
    del cluster.logs[A]
    cluster.logs[B].add()
    assert query.batch()
    assert query.start.gone == (A,)
    cluster.logs[A] = FakeLog({8: [1]})
    assert query.batch()
    assert query.read[-1] == (A, LogPosition(8, 0))
