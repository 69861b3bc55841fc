"""Ledgers are taken off a bookie, with words on how far it is."""

from __future__ import annotations

import json

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_cli.bookie_admin.simulated import options_of, run

from geminga_autorecovery.errors import BookieStillThere, BookieUnknown
from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import StillRegistered
from geminga_cli.bookie_admin.recovery import decommission_bookie, recover_bookie
from geminga_protocol.records.bookies.cookies import cookie_path
from geminga_protocol.records.ledgers.underreplication import encode_lock, lock_path

Capture = pytest.CaptureFixture[str]


def test_a_bookie_that_runs_is_left_alone_without_force(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one", copies=1)
        (source,) = (await cluster.store.read(ledger_id)).metadata.fragments[0].ensemble
        with pytest.raises(StillRegistered, match="--force"):
            await recover_bookie(cluster, options_of("recover", source))
        with pytest.raises(BookieStillThere):
            await decommission_bookie(cluster, options_of("decommission", source))
        assert await recover_bookie(cluster, options_of("recover", source, "--force")) == 0
        told = capsys.readouterr().out
        assert "1 of 1 ledger\n" in told
        assert told.endswith("no ledger is on it any more\n")
        ensemble = (await cluster.store.read(ledger_id)).metadata.fragments[0].ensemble
        assert ensemble != (source,)

    run(scenario)


def test_ledgers_that_cannot_be_moved_are_counted(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        await simulated.write(b"one", copies=2)  # no bookie is left to take a place
        assert await recover_bookie(cluster, options_of("recover", "b1", "--force", "--json")) == 1
        told = capsys.readouterr()
        assert json.loads(told.out) == {"bookie": "b1", "ledgers": 1, "done": 0, "failed": 1}
        assert told.err.startswith("ledger 0: nothing can take the place of b1")
        assert await recover_bookie(cluster, options_of("recover", "b1", "--force")) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("ledger 0: nothing can take the place of b1")
        assert lines[1] == "0 of 1 ledger, 1 failed"
        assert lines[2] == "1 ledger could not be moved off b1; the lines above say why"

    run(scenario)


def test_ledgers_that_a_worker_is_on_are_waited_for_in_so_many_words(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one", copies=1)
        (source,) = (await cluster.store.read(ledger_id)).metadata.fragments[0].ensemble
        await cluster.coordination.create(
            lock_path(ledger_id), encode_lock("b9"), ephemeral=True, make_parents=True
        )
        assert await recover_bookie(cluster, options_of("recover", source, "--force")) == 1
        told = capsys.readouterr().out.splitlines()
        assert told[0] == "0 of 1 ledger, waiting for 1 that a replication worker is on"
        assert told[1].startswith(f"ledger {ledger_id}: a replication worker (b9) has been on it")
        assert told[2] == "0 of 1 ledger, 1 failed"

    run(scenario)


def test_a_bookie_without_ledgers_is_decommissioned_at_once(capsys: Capture) -> None:
    async def scenario(_simulated: Simulated, cluster: Cluster) -> None:
        await cluster.coordination.create(cookie_path("b9"), b"a cookie")
        assert await decommission_bookie(cluster, options_of("decommission", "b9")) == 0
        assert "bookie b9 is decommissioned" in capsys.readouterr().out
        assert await cluster.coordination.exists(cookie_path("b9")) is None

    run(scenario)


def test_a_bookie_that_never_was_is_not_taken_for_one_without_ledgers() -> None:
    async def scenario(_simulated: Simulated, cluster: Cluster) -> None:
        with pytest.raises(BookieUnknown, match=r"there are: b1, b2$"):
            await decommission_bookie(cluster, options_of("decommission", "b9"))
        with pytest.raises(BookieUnknown, match=r"there are: b1, b2$"):
            await recover_bookie(cluster, options_of("recover", "b9"))

    run(scenario)
