"""Bookies, ledgers, marks and the auditor are listed, for people and for programs."""

from __future__ import annotations

import json

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_cli.bookie_admin.simulated import options_of, run

from geminga_autorecovery.errors import BookieUnknown
from geminga_autorecovery.zookeeper.underreplication_marks import UnderreplicationMarks
from geminga_cli.bookie_admin import lists
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_protocol.records.bookies.bookie_info import AVAILABLE_PATH
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.ledgers.ledger_metadata import ledger_path
from geminga_protocol.records.ledgers.underreplication import VOTES_PATH, encode_vote

Capture = pytest.CaptureFixture[str]


def test_bookies_are_listed_with_their_room(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        simulated.bookies[0].tell_http(8000)
        await simulated.access.registry.resolve("b1")
        assert await lists.list_bookies(cluster, options_of("list-bookies")) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["bookie", "mode", "address", "http", "free", "total"]
        assert [line.split()[:3] for line in lines[1:]] == [
            ["b1", "writable", "b1:3181"],
            ["b2", "writable", "b2:3181"],
        ]

    run(scenario)


def test_a_bookie_that_does_not_answer_is_wrong(capsys: Capture) -> None:
    async def scenario(_simulated: Simulated, cluster: Cluster) -> None:
        await cluster.coordination.create(f"{AVAILABLE_PATH}/ghost:3181")
        assert await lists.list_bookies(cluster, options_of("list-bookies", "--json")) == 1
        found = {each["bookie"]: each for each in json.loads(capsys.readouterr().out)}
        assert found["ghost:3181"]["free"] is None
        assert "ghost:3181" in found["ghost:3181"]["error"]
        assert found["b1"]["free"] > 0

    run(scenario)


def test_ledgers_are_listed_by_bookie_with_what_is_known(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        both = await simulated.write(b"one", b"three")
        one = await simulated.write(b"x", copies=1, is_open=True)
        assert await lists.list_ledgers(cluster, options_of("list-ledgers")) == 0
        assert capsys.readouterr().out.split() == [str(both), str(one)]
        (where,) = (await cluster.store.read(one)).metadata.fragments[0].ensemble
        other = "b1" if where == "b2" else "b2"
        options = options_of("list-ledgers", "--bookie", other, "--metadata")
        assert await lists.list_ledgers(cluster, options) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith("0  closed  last entry 1  8 bytes  E=2 Qw=2 Qa=2  0: b")
        options = options_of("list-ledgers", "--metadata", "--json")
        assert await lists.list_ledgers(cluster, options) == 0
        shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [each["state"] for each in shown] == ["CLOSED", "OPEN"]

    run(scenario)


def test_the_ledgers_of_a_bookie_that_never_was_are_not_none() -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        await simulated.write(b"one")
        await cluster.coordination.create(cookie_path("b3"), b"a cookie")
        for bookie_id in ("b3", "b1"):
            options = options_of("list-ledgers", "--bookie", bookie_id)
            assert await lists.list_ledgers(cluster, options) == 0
        with pytest.raises(BookieUnknown, match=r"there are: b1, b2, b3$"):
            await lists.list_ledgers(cluster, options_of("list-ledgers", "--bookie", "b9"))

    run(scenario)


def test_a_record_that_says_nothing_is_wrong_and_hides_no_other(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        await simulated.write(b"one")
        await cluster.coordination.create(ledger_path(7), b"garbage", make_parents=True)
        assert await lists.list_ledgers(cluster, options_of("list-ledgers", "--metadata")) == 1
        told = capsys.readouterr().out
        assert "0  closed" in told
        assert "ledger 7" in told

    run(scenario)


def test_the_metadata_of_a_ledger_is_shown(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = str(await simulated.write(b"one"))
        assert await lists.ledger_metadata(cluster, options_of("ledger-metadata", ledger_id)) == 0
        told = capsys.readouterr().out
        assert "state                  CLOSED\n" in told
        assert "from entry 0: b" in told
        options = options_of("ledger-metadata", ledger_id, "--json")
        assert await lists.ledger_metadata(cluster, options) == 0
        assert json.loads(capsys.readouterr().out)["lastEntryId"] == 0

    run(scenario)


def test_marked_ledgers_are_something_wrong(capsys: Capture) -> None:
    async def scenario(_simulated: Simulated, cluster: Cluster) -> None:
        options = options_of("list-under-replicated")
        assert await lists.list_under_replicated(cluster, options) == 0
        assert "no ledger" in capsys.readouterr().out
        await UnderreplicationMarks(cluster.coordination, cluster.clock).mark(5, ["b3", "b4"])
        assert await lists.list_under_replicated(cluster, options) == 1
        assert capsys.readouterr().out.splitlines()[1].split(maxsplit=1) == ["5", "b3, b4"]

    run(scenario)


def test_the_auditor_is_named(capsys: Capture) -> None:
    async def scenario(_simulated: Simulated, cluster: Cluster) -> None:
        options = options_of("who-is-auditor")
        assert await lists.who_is_auditor(cluster, options) == 1
        assert "no auditor" in capsys.readouterr().out
        await cluster.coordination.create(
            f"{VOTES_PATH}/V_0000000001", encode_vote("b2"), make_parents=True
        )
        assert await lists.who_is_auditor(cluster, options) == 0
        assert capsys.readouterr().out == "b2\n"

    run(scenario)
