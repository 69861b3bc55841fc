"""A lost VERSION file is written again, over nothing; what nothing needs is forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_cli.bookie_admin.simulated import options_of, run

from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.cookie_changes import delete_cookie, restore_cookie
from geminga_cli.bookie_admin.errors import (
    BookieNeeded,
    NoCookie,
    NotConfirmed,
    NotRestored,
    StillRegistered,
)
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.errors import MalformedRecord

Capture = pytest.CaptureFixture[str]


def test_a_lost_version_file_is_what_zookeeper_has(tmp_path: Path, capsys: Capture) -> None:
    journal, ledgers = tmp_path / "journal", tmp_path / "ledgers"
    journal.mkdir()
    ledgers.mkdir()
    words = ("restore-cookie", "b1", "--directory", str(journal), "--directory", str(ledgers))

    async def scenario(_: Simulated, cluster: Cluster) -> None:
        assert await restore_cookie(cluster, options_of(*words)) == 0
        value, _stat = await cluster.coordination.get(cookie_path("b1"))
        assert [(each / "VERSION").read_bytes() for each in (journal, ledgers)] == [value, value]
        told = capsys.readouterr().out.splitlines()
        assert told[0] == f"{journal}/VERSION is written: it belongs to bookie b1"
        assert told[-1].startswith("the bookie was made with: ")

    run(scenario)


def test_nothing_is_written_where_one_directory_is_wrong(tmp_path: Path) -> None:
    good, taken = tmp_path / "good", tmp_path / "taken"
    good.mkdir()
    taken.mkdir()
    (taken / "VERSION").write_text("another bookie's")

    async def scenario(_: Simulated, cluster: Cluster) -> None:
        for wrong, why in ((taken, "has a VERSION already"), (tmp_path / "none", "no directory")):
            both = ("--directory", str(good), "--directory", str(wrong))
            with pytest.raises(NotRestored, match=why):
                await restore_cookie(cluster, options_of("restore-cookie", "b1", *both))
        assert list(good.iterdir()) == []
        words = ("--directory", str(good))
        with pytest.raises(NoCookie, match=r"b9.* b1, b2"):
            await restore_cookie(cluster, options_of("restore-cookie", "b9", *words))
        await cluster.coordination.set(cookie_path("b1"), b"garbage")
        with pytest.raises(MalformedRecord):
            await restore_cookie(cluster, options_of("restore-cookie", "b1", *words))
        assert list(good.iterdir()) == []

    run(scenario)
    assert (taken / "VERSION").read_text() == "another bookie's"


def test_a_bookie_that_nothing_needs_is_forgotten_when_that_is_confirmed(capsys: Capture) -> None:
    async def scenario(_: Simulated, cluster: Cluster) -> None:
        await cluster.coordination.create(cookie_path("b9"), b"a cookie")
        with pytest.raises(NotConfirmed, match="Say --yes"):
            await delete_cookie(cluster, options_of("delete-cookie", "b9"))
        assert await cluster.coordination.exists(cookie_path("b9")) is not None
        options = options_of("delete-cookie", "b9", "--yes", "--json")
        assert await delete_cookie(cluster, options) == 0
        assert json.loads(capsys.readouterr().out) == {"bookie": "b9", "deleted": True}
        with pytest.raises(NoCookie):
            await delete_cookie(cluster, options)

    run(scenario)


def test_a_bookie_that_runs_or_holds_ledgers_is_not_forgotten() -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one", copies=2)
        options = options_of("delete-cookie", "b2", "--yes")
        with pytest.raises(StillRegistered, match="b2 is running: stop it first"):
            await delete_cookie(cluster, options)
        await cluster.coordination.delete("/ledgers/available/b2")
        with pytest.raises(BookieNeeded, match=f"1 ledger on bookie b2: {ledger_id}. "):
            await delete_cookie(cluster, options)
        assert await cluster.coordination.exists(cookie_path("b2")) is not None

    run(scenario)
