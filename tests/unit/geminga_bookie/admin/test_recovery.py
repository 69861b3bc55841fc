"""Auto-recovery is asked and ordered under upstream's paths, in its words."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster, run

from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.ledgers.ledger_metadata import LedgerMetadata, ledger_path
from geminga_protocol.records.ledgers.underreplication import VOTE_PREFIX, VOTES_PATH, encode_vote

BASE = "/api/v1/autorecovery"


def test_it_can_be_switched_off_and_on() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.get(f"{BASE}/status")).json == {"enabled": True}
        answer = await cluster.put(f"{BASE}/status?enabled=false")
        assert answer.json == {"enabled": False}
        assert (await cluster.put(f"{BASE}/status?enabled=true")).json == {"enabled": True}
        assert (await cluster.put(f"{BASE}/status")).status == 400

    run(scenario)


def test_the_auditor_is_named_and_told_to_audit() -> None:
    async def scenario(cluster: Cluster) -> None:
        answer = await cluster.get(f"{BASE}/who_is_auditor")
        assert (answer.status, answer.text) == (404, "No auditor elected")
        assert (await cluster.put(f"{BASE}/trigger_audit")).status == 404
        await cluster.coordination.create(
            f"{VOTES_PATH}/{VOTE_PREFIX}", encode_vote("b2"), sequential=True, make_parents=True
        )
        assert (await cluster.get(f"{BASE}/who_is_auditor")).text == "Auditor: b2"
        await cluster.put(f"{BASE}/lost_bookie_recovery_delay", {"delay_seconds": 5})
        answer = await cluster.put(f"{BASE}/trigger_audit")
        assert (answer.status, answer.text) == (200, "Success trigger audit.")

    run(scenario)


def test_the_grace_of_lost_bookies_is_read_and_written() -> None:
    async def scenario(cluster: Cluster) -> None:
        path = f"{BASE}/lost_bookie_recovery_delay"
        assert (await cluster.get(path)).status == 404
        answer = await cluster.put(path, {"delay_seconds": 5})
        assert answer.text == "Success set lostBookieRecoveryDelay to 5"
        assert (await cluster.get(path)).text == "lostBookieRecoveryDelay value: 5"
        for wrong in (-1, True, "5", 5.5, None, 1 << 31):
            answer = await cluster.put(path, {"delay_seconds": wrong})
            assert answer.status == 400
            assert (
                answer.text
                == f"delay_seconds must be a whole number, 0 to 2147483647, not {wrong!r}"
            )
        assert (await cluster.put(path, {"seconds": 5})).status == 404
        assert (await cluster.put(path)).status == 404

    run(scenario)


def test_marked_ledgers_are_listed_by_what_they_miss() -> None:
    async def scenario(cluster: Cluster) -> None:
        path = f"{BASE}/list_under_replicated_ledger"
        answer = await cluster.get(path)
        assert (answer.status, answer.text) == (404, "No under replicated ledgers found")
        marks = UnderreplicationMarks(cluster.coordination, cluster.access.clock)
        await marks.mark(3, ["b3"])
        await marks.mark(12, ["b3", "b4"])
        assert (await cluster.get(path)).json == [3, 12]
        assert (await cluster.get(f"{path}?missingreplica=b4")).json == [12]
        assert (await cluster.get(f"{path}?excludingmissingreplica=b4")).json == [3]
        shown = (await cluster.get(f"{path}?printmissingreplica=true")).json
        assert shown == {"3": ["b3"], "12": ["b3", "b4"]}

    run(scenario)


def test_a_bookie_is_recovered_and_forgotten_where_that_was_asked_for() -> None:
    async def scenario(cluster: Cluster) -> None:
        ledger_id = await cluster.write(b"one", b"two", copies=1)
        value, _ = await cluster.coordination.get(ledger_path(ledger_id))
        (source,) = LedgerMetadata.decode(value).fragments[0].ensemble
        order = {"bookie_src": [source], "delete_cookie": True}
        answer = await cluster.put(f"{BASE}/bookie", order)
        assert (answer.status, answer.text) == (200, "Success send recovery request command.")
        assert (await cluster.put(f"{BASE}/bookie", order)).status == 409
        await asyncio.sleep(30)
        value, _ = await cluster.coordination.get(ledger_path(ledger_id))
        assert LedgerMetadata.decode(value).fragments[0].ensemble != (source,)
        assert await cluster.coordination.exists(cookie_path(source)) is None

    run(scenario)


def test_a_bookie_without_ledgers_is_decommissioned_at_once_and_keeps_its_cookie() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.coordination.create(cookie_path("b9"), b"", make_parents=True)
        answer = await cluster.put(f"{BASE}/decommission", {"bookie_src": "b9"})
        assert answer.text == "Success send decommission Bookie command b9"
        await asyncio.sleep(5)
        assert await cluster.coordination.exists(cookie_path("b9")) is not None
        order = {"bookie_src": "b9", "delete_cookie": "true"}
        assert (await cluster.put(f"{BASE}/decommission", order)).status == 200
        await asyncio.sleep(5)
        assert await cluster.coordination.exists(cookie_path("b9")) is None

    run(scenario)


def test_a_bookie_that_runs_is_not_decommissioned() -> None:
    async def scenario(cluster: Cluster) -> None:
        answer = await cluster.put(f"{BASE}/decommission", {"bookie_src": "b1"})
        assert (answer.status, "stop it first" in answer.text) == (400, True)

    run(scenario)


def test_orders_about_a_bookie_that_never_was_are_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        for path, source in (("bookie", ["b9"]), ("decommission", "b9")):
            answer = await cluster.put(f"{BASE}/{path}", {"bookie_src": source})
            assert (answer.status, "there are: b1, b2" in answer.text) == (404, True)

    run(scenario)


@pytest.mark.parametrize("path", ["bookie", "decommission"])
def test_orders_that_name_no_bookie_are_refused(path: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert (await cluster.put(f"{BASE}/{path}")).status == 404
        orders: tuple[dict[str, object], ...] = (
            {},
            {"bookie_src": []},
            {"bookie_src": 1},
            {"bookie_src": "a b"},
        )
        for order in orders:
            assert (await cluster.put(f"{BASE}/{path}", order)).status in (400, 404)

    run(scenario)
