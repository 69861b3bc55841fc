"""Every copy is looked at, and those that are not as they should be are named."""

from __future__ import annotations

import json

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_cli.bookie_admin.simulated import damage, lose, options_of, run

from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.verification import verify_ledger

Capture = pytest.CaptureFixture[str]


def test_a_sound_ledger_is_verified(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        for is_open in (False, True):
            payloads = [b"m%d" % number for number in range(25)]
            ledger = str(await simulated.write(*payloads, is_open=is_open))
            assert await verify_ledger(cluster, options_of("verify-ledger", ledger)) == 0
            assert "copies are right" in capsys.readouterr().out

    run(scenario)


def test_each_copy_that_is_wrong_is_named(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(*(b"m%d" % number for number in range(25)))
        lose(simulated, 0, ledger_id, 3)
        lose(simulated, 0, ledger_id, 4)
        damage(simulated, 1, ledger_id, 24)
        options = options_of("verify-ledger", str(ledger_id))
        assert await verify_ledger(cluster, options) == 1
        told = capsys.readouterr().out
        assert "b1: entries 3-4 missing: the bookie says that it has none" in told
        assert "b2: entry 24 corrupt: " in told
        assert told.endswith("3 of 50 copies are not as they should be\n")
        options = options_of("verify-ledger", str(ledger_id), "--json")
        assert await verify_ledger(cluster, options) == 1
        assert json.loads(capsys.readouterr().out)["bookies"]["b1"]["missing"] == 2

    run(scenario)


def test_an_open_ledger_is_verified_beyond_what_is_known_to_be_confirmed(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one", b"two", b"three", is_open=True)
        lose(simulated, 0, ledger_id, 2)
        options = options_of("verify-ledger", str(ledger_id))
        assert await verify_ledger(cluster, options) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[0] == f"ledger {ledger_id}: open, 3 entries, each on 2 bookies"
        assert told[1] == "none of them is known to be confirmed; 0-2 are stored beyond that"
        assert told[-2].startswith("b1: entry 2 missing: ")
        assert told[-1] == "nothing is wrong"

    run(scenario)


def test_a_bookie_that_is_gone_is_unreachable(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one", b"two")
        await cluster.coordination.delete("/ledgers/available/b2")
        assert await verify_ledger(cluster, options_of("verify-ledger", str(ledger_id))) == 1
        assert "b2: entries 0-1 unreachable: " in capsys.readouterr().out

    run(scenario)
