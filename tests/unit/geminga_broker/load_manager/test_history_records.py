"""The next leader finds the averages that the leader before it wrote to ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from geminga_broker.load_manager.history_records import HistoryRecords
from geminga_protocol.records.cluster.brokers import (
    BundleData,
    MessageAverages,
    TimeAverageBrokerData,
)
from geminga_runtime.coordination import Coordination

BUNDLE = "t/n/0x00000000_0x80000000"
DATA = BundleData(
    short_term_data=MessageAverages(max_samples=10, num_samples=3, msg_rate_in=600.0), topics=2
)
Tree = Callable[[], dict[str, bytes]]


async def test_the_next_leader_finds_what_was_written(
    coordination: Coordination, tree: Tree
) -> None:
    records = HistoryRecords(coordination)
    assert await records.read_bundles() == {}
    both = {"a:1": TimeAverageBrokerData(), "b:1": TimeAverageBrokerData()}
    await records.write({BUNDLE: DATA, "t/m/0x0_0x1": DATA}, both, is_allowed=lambda: True)
    again = replace(DATA, topics=9)
    one = {"b:1": TimeAverageBrokerData()}
    changes = {BUNDLE: again, "t/m/0x0_0x1": None, "t/m/never": None}
    await records.write(changes, one, is_allowed=lambda: True)
    assert await HistoryRecords(coordination).read_bundles() == {BUNDLE: again}
    averages = "/loadbalance/broker-time-average"
    assert [path for path in tree() if path.startswith(averages)] == [averages, f"{averages}/b:1"]
    # tests/golden/records/load.jsonl has such nodes of a real broker.
    assert tree()[f"/loadbalance/bundle-data/{BUNDLE}"] == again.encode()


async def test_a_broker_that_leads_no_more_writes_nothing(
    coordination: Coordination, tree: Tree
) -> None:
    before = tree()
    brokers = {"a:1": TimeAverageBrokerData()}
    await HistoryRecords(coordination).write({BUNDLE: DATA}, brokers, is_allowed=lambda: False)
    assert tree() == before


async def test_a_record_of_another_program_is_passed_over(coordination: Coordination) -> None:
    path = "/loadbalance/bundle-data/t/n"
    await coordination.create(f"{path}/0x0_0x1", b"no JSON", make_parents=True)
    await coordination.create(f"{path}/0x1_0x2", DATA.encode())
    assert await HistoryRecords(coordination).read_bundles() == {"t/n/0x1_0x2": DATA}
