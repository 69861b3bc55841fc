"""The auditor marks the ledgers of bookies that stay away, and those that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.unit.geminga_autorecovery.cluster import CONFIG, Cluster, metadata_of
from tests.unit.geminga_ledger.world import until

from geminga_autorecovery.auditing.auditor import Auditor
from geminga_autorecovery.config import AutoRecoveryConfig
from geminga_autorecovery.zookeeper import controls
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks, read_mark
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.bookies.racks import RACKS_PATH, BookieRack, BookieRacks
from geminga_protocol.records.ledgers.ledger_metadata import ledger_path
from geminga_protocol.records.ledgers.underreplication import LOST_BOOKIE_DELAY_PATH

CLOSED = metadata_of((2, 2, 2), [(0, (0, 1))], last_entry=9)
ELSEWHERE = metadata_of((2, 2, 2), [(0, (0, 2))], last_entry=9)
# A minute's grace, and no check of all ledgers.
PATIENT = replace(CONFIG, lost_bookie_recovery_delay_s=60, auditor_periodic_check_interval_s=0)


def make_cluster() -> Cluster:
    """Ledger 1 on b0 and b1, ledger 2 on b0 and b2."""
    cluster = Cluster(3)
    for number in range(3):
        cluster.coordination.zookeeper.put(cookie_path(f"b{number}"), b"a cookie")
    cluster.put_ledger(1, CLOSED)
    cluster.put_ledger(2, ELSEWHERE)
    return cluster


@asynccontextmanager
async def auditing(cluster: Cluster, config: AutoRecoveryConfig) -> AsyncGenerator[Auditor]:
    async with cluster.repair(config) as repair:
        auditor = Auditor(cluster.coordination, cluster.clock, repair, config)
        repair.spawn(auditor.run(), name="auditor")
        await asyncio.sleep(1)
        yield auditor


async def marked(cluster: Cluster) -> dict[int, tuple[str, ...]]:
    marks = UnderreplicationMarks(cluster.coordination, cluster.clock)
    found = {
        ledger_id: await read_mark(marks.coordination, ledger_id)
        for ledger_id in await marks.ledgers()
    }
    return {ledger_id: mark.missing_bookies for ledger_id, mark in found.items() if mark}


async def test_with_all_bookies_there_nothing_is_marked() -> None:
    cluster = make_cluster()
    async with auditing(cluster, PATIENT) as auditor:
        await asyncio.sleep(1000)
        assert await marked(cluster) == {}
        assert auditor.counters.audits == 1


async def test_the_ledgers_of_a_lost_bookie_are_marked_when_its_grace_is_over() -> None:
    cluster = make_cluster()
    async with auditing(cluster, PATIENT) as auditor:
        cluster.lose(1)
        await asyncio.sleep(58)
        assert await marked(cluster) == {}
        await asyncio.sleep(4)
        assert await marked(cluster) == {1: ("b1",)}
        assert auditor.counters.ledgers_marked == 1
        assert auditor.counters.audits_delayed == 1
        assert auditor.counters.marked_bytes == 100


async def test_a_bookie_that_comes_back_in_time_costs_nothing() -> None:
    cluster = make_cluster()
    async with auditing(cluster, PATIENT) as auditor:
        cluster.lose(1)
        await asyncio.sleep(30)
        cluster.register(1, 3182)
        await asyncio.sleep(1000)
        assert await marked(cluster) == {}
        assert auditor.counters.audits_cancelled == 1


async def test_several_lost_at_once_are_not_waited_for() -> None:
    cluster = make_cluster()
    async with auditing(cluster, PATIENT):
        cluster.lose(1)
        cluster.lose(2)
        await asyncio.sleep(1)
        assert await marked(cluster) == {1: ("b1",), 2: ("b2",)}


async def test_a_read_only_bookie_is_not_lost() -> None:
    cluster = make_cluster()
    cluster.coordination.zookeeper.put("/ledgers/available/readonly")
    async with auditing(cluster, replace(PATIENT, lost_bookie_recovery_delay_s=0)):
        cluster.coordination.zookeeper.put("/ledgers/available/readonly/b1", b"")
        cluster.unregister(1)
        await asyncio.sleep(100)
        assert await marked(cluster) == {}


async def test_a_bookie_lost_before_the_term_has_its_grace_too() -> None:
    cluster = make_cluster()
    cluster.lose(1)
    async with auditing(cluster, PATIENT):
        await asyncio.sleep(50)
        assert await marked(cluster) == {}
        await asyncio.sleep(15)
        assert await marked(cluster) == {1: ("b1",)}


async def test_the_regular_audit_finds_a_bookie_that_only_a_ledger_names() -> None:
    cluster = make_cluster()
    async with auditing(cluster, replace(PATIENT, auditor_periodic_bookie_check_interval_s=3600)):
        cluster.put_ledger(3, metadata_of((1, 1, 1), [(0, (0,))], last_entry=0))
        stranger = metadata_of((1, 1, 1), [(0, (7,))], last_entry=-1)
        cluster.put_metadata(4, stranger)
        await asyncio.sleep(3500)
        assert await marked(cluster) == {}
        await asyncio.sleep(200)
        assert await marked(cluster) == {4: ("b7",)}


async def test_the_grace_stands_in_zookeeper_and_can_be_changed_there() -> None:
    cluster = make_cluster()
    async with auditing(cluster, PATIENT):
        assert cluster.coordination.zookeeper.tree.get(LOST_BOOKIE_DELAY_PATH)[0] == b"60"
        await controls.set_lost_bookie_delay(cluster.coordination, 600)
        await asyncio.sleep(1)
        cluster.lose(1)
        await asyncio.sleep(500)
        assert await marked(cluster) == {}
        await controls.set_lost_bookie_delay(cluster.coordination, 5)
        await asyncio.sleep(7)
        assert await marked(cluster) == {1: ("b1",)}


async def test_writing_the_same_grace_starts_an_audit_as_the_shell_expects() -> None:
    cluster = make_cluster()
    async with auditing(cluster, PATIENT):
        cluster.lose(1)
        await asyncio.sleep(1)
        await controls.set_lost_bookie_delay(cluster.coordination, 60)
        await asyncio.sleep(1)
        assert await marked(cluster) == {1: ("b1",)}


async def test_nothing_is_marked_while_auto_recovery_is_off() -> None:
    cluster = make_cluster()
    async with auditing(cluster, replace(PATIENT, lost_bookie_recovery_delay_s=0)):
        await controls.disable(cluster.coordination)
        cluster.lose(1)
        await asyncio.sleep(1000)
        assert await marked(cluster) == {}
        await controls.enable(cluster.coordination)
        await asyncio.sleep(1)
        assert await marked(cluster) == {1: ("b1",)}


async def test_every_ledger_is_read_at_first_and_then_at_its_interval() -> None:
    cluster = make_cluster()
    async with auditing(
        cluster, replace(PATIENT, auditor_periodic_check_interval_s=3600)
    ) as auditor:
        await until(lambda: auditor.counters.checks == 1)
        assert await marked(cluster) == {}
        del cluster.bookies[2].entries[2][9]
        await asyncio.sleep(3500)
        assert await marked(cluster) == {}
        await asyncio.sleep(200)
        assert await marked(cluster) == {2: ("b2",)}
        assert auditor.counters.ledgers_checked == 4


async def test_a_new_auditor_goes_on_where_the_last_one_checked() -> None:
    cluster = make_cluster()
    now_ms = cluster.clock.wall_ms()
    await controls.set_last_check(cluster.coordination, now_ms - 900_000)
    async with auditing(
        cluster, replace(PATIENT, auditor_periodic_check_interval_s=3600)
    ) as auditor:
        await asyncio.sleep(2600)
        assert auditor.counters.checks == 0
        await asyncio.sleep(200)
        assert auditor.counters.checks == 1


async def test_a_check_does_not_mark_bookies_that_the_audit_waits_for() -> None:
    cluster = make_cluster()
    cluster.lose(1)
    config = replace(
        PATIENT, auditor_periodic_check_interval_s=3600, lost_bookie_recovery_delay_s=600
    )
    async with auditing(cluster, config) as auditor:
        await asyncio.sleep(500)
        assert await marked(cluster) == {}
        assert auditor.counters.checks_skipped > 0


async def test_a_ledger_whose_metadata_cannot_be_read_does_not_stop_the_audit() -> None:
    cluster = make_cluster()
    cluster.coordination.zookeeper.put(ledger_path(0), b"nothing")
    async with auditing(
        cluster,
        replace(PATIENT, auditor_periodic_check_interval_s=60, lost_bookie_recovery_delay_s=0),
    ):
        cluster.lose(1)
        await asyncio.sleep(100)
        assert await marked(cluster) == {1: ("b1",)}


async def test_lost_connections_put_the_audit_off() -> None:
    cluster = make_cluster()
    async with auditing(cluster, replace(PATIENT, lost_bookie_recovery_delay_s=0)):
        for method in ("get", "children", "exists", "create"):
            cluster.coordination.lose(method, "/ledgers", is_done=False)
        cluster.lose(1)
        await asyncio.sleep(100)
        assert await marked(cluster) == {1: ("b1",)}


async def test_what_bookies_say_they_lack_is_marked_at_its_interval() -> None:
    cluster = make_cluster()
    cluster.put_ledger(3, replace(CLOSED, ack_quorum=1))
    cluster.put_ledger(4, metadata_of((2, 2, 2), [(0, (0, 1))]), last_stored=3)  # it is open
    del cluster.bookies[1].entries[1][5], cluster.bookies[1].entries[3][5]
    del cluster.bookies[2].entries[2]
    del cluster.bookies[1].entries[4]
    async with auditing(
        cluster, replace(PATIENT, auditor_periodic_replicas_check_interval_s=3600)
    ) as auditor:
        counters = auditor.counters
        await until(lambda: counters.replicas_checks == 1)
        assert await marked(cluster) == {1: ("b1",), 2: ("b2",), 3: ("b1",)}
        assert counters.ledgers_below_ack_quorum == 2
        assert counters.ledgers_below_write_quorum == 1
        assert counters.ledgers_without_replica == 0
        del cluster.bookies[0].entries[2][9]
        await asyncio.sleep(3700)
        assert counters.replicas_checks == 2
        assert counters.ledgers_below_ack_quorum == 1
        assert counters.ledgers_without_replica == 1
        assert await controls.last_check_ms(cluster.coordination, controls.REPLICAS) is not None


async def test_ledgers_that_stand_in_one_rack_of_two_are_counted_and_left_alone() -> None:
    cluster = make_cluster()
    places = {"b0": "/one", "b1": "/one", "b2": "/two"}
    racks = {bookie: BookieRack(rack=rack) for bookie, rack in places.items()}
    cluster.coordination.zookeeper.put(RACKS_PATH, BookieRacks({"default": racks}).encode())
    async with auditing(
        cluster, replace(PATIENT, auditor_periodic_placement_policy_check_interval_s=3600)
    ) as auditor:
        await until(lambda: auditor.counters.placement_checks == 1)
        assert auditor.counters.ledgers_badly_placed == 1
        assert await marked(cluster) == {}
        assert await controls.last_check_ms(cluster.coordination, controls.PLACEMENT) is not None


async def test_checks_of_replicas_and_placement_are_off_by_default() -> None:
    cluster = make_cluster()
    async with auditing(cluster, PATIENT) as auditor:
        await asyncio.sleep(10_000)
        assert auditor.counters.replicas_checks == auditor.counters.placement_checks == 0
