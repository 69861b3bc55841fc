"""Entries are read from all or one, and copies that are not as they should be are named."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
from tests.unit.magnetar_bookie.admin.cluster import Cluster as Simulated
from tests.unit.magnetar_cli.bookie_admin.simulated import options_of, run

from magnetar_cli.bookie_admin.cluster import Cluster
from magnetar_cli.bookie_admin.errors import UnknownBookie
from magnetar_cli.bookie_admin.reading import read_ledger, verify_ledger
from magnetar_ledger import NoSuchLedger

Capture = pytest.CaptureFixture[str]


def lose(simulated: Simulated, number: int, ledger_id: int, entry_id: int) -> None:
    """A bookie has an entry no more."""
    del simulated.bookies[number].storage.write_cache.entries_of(ledger_id)[entry_id]


def damage(simulated: Simulated, number: int, ledger_id: int, entry_id: int) -> None:
    """The copy of one bookie is not what was written."""
    entries = simulated.bookies[number].storage.write_cache.entries_of(ledger_id)
    entries[entry_id] = entries[entry_id][:-1] + b"?"


def test_entries_are_printed_in_each_format(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger = str(await simulated.write(b"one", b"two\n", b"three"))
        words = ("read-ledger", ledger)
        assert await read_ledger(cluster, options_of(*words, "--last", "0")) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[0] == "entry 0  3 bytes"
        assert told[1].endswith("one")
        options = options_of(*words, "--first", "1", "--format", "text")
        assert await read_ledger(cluster, options) == 0
        told = capsys.readouterr().out.splitlines()
        assert told == ["entry 1  4 bytes", "two\\n", "entry 2  5 bytes", "three"]
        assert await read_ledger(cluster, options_of(*words, "--format", "length")) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3
        assert await read_ledger(cluster, options_of(*words, "--json")) == 0
        shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [b64decode(each["payload"]) for each in shown] == [b"one", b"two\n", b"three"]
        assert await read_ledger(cluster, options_of(*words, "--first", "9")) == 0
        told_text = capsys.readouterr().out
        assert told_text == f"ledger {ledger} ends with entry 2: no entries from 9\n"

    run(scenario)


def test_one_bookies_copies_are_read_from_it_alone(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one", b"two", b"three")
        lose(simulated, 1, ledger_id, 1)
        words = ("read-ledger", str(ledger_id), "--format", "text", "--bookie")
        assert await read_ledger(cluster, options_of(*words, "b1")) == 0
        assert "two" in capsys.readouterr().out
        assert await read_ledger(cluster, options_of(*words, "b2")) == 1
        told = capsys.readouterr().out
        assert "entry 1  missing: the bookie says that it has none" in told
        assert "three" in told
        with pytest.raises(UnknownBookie, match="b1, b2"):
            await read_ledger(cluster, options_of(*words, "b9"))
        with pytest.raises(NoSuchLedger):
            await read_ledger(cluster, options_of("read-ledger", "77"))

    run(scenario)


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


def test_a_bookie_that_is_gone_is_unreachable(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger_id = await simulated.write(b"one", b"two")
        await cluster.coordination.delete("/ledgers/available/b2")
        assert await verify_ledger(cluster, options_of("verify-ledger", str(ledger_id))) == 1
        assert "b2: entries 0-1 unreachable: " in capsys.readouterr().out

    run(scenario)
