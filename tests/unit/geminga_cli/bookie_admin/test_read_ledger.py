"""Entries are read from all or one, confirmed or not, and what is not there is said."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_cli.bookie_admin.simulated import damage, lose, options_of, run

from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.errors import CrossedRange, UnknownBookie
from geminga_cli.bookie_admin.read_ledger import read_ledger
from geminga_ledger import NoSuchLedger

Capture = pytest.CaptureFixture[str]


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


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger = str(await simulated.write(b"one"))
        options = options_of("read-ledger", ledger, "--first", "5", "--last", "2")
        with pytest.raises(CrossedRange, match="--first 5 comes after --last 2"):
            await read_ledger(cluster, options)

    run(scenario)


def test_a_range_beyond_the_end_is_said_to_be(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger = str(await simulated.write(b"one", b"two"))
        words = ("read-ledger", ledger, "--first", "500")
        assert await read_ledger(cluster, options_of(*words)) == 0
        told = f"ledger {ledger} ends with entry 1: no entries from 500"
        assert capsys.readouterr().out == f"{told}\n"
        options = options_of(*words, "--last", "600", "--bookie", "b1", "--json")
        assert await read_ledger(cluster, options) == 0
        assert capsys.readouterr() == ("", f"{told} to 600 that belong on b1\n")

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


def test_an_open_ledger_is_read_beyond_what_is_known_to_be_confirmed(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        # They are confirmed together, and no entry follows that would tell a reader.
        ledger_id = await simulated.write(b"one", b"two", b"three", is_open=True)
        words = ("read-ledger", str(ledger_id), "--format", "text")
        beyond = "from entry 0 on it is not known whether entries are confirmed"
        assert await read_ledger(cluster, options_of(*words)) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[:3] == [beyond, "entry 0  3 bytes", "one"]
        assert told[-1] == "three"
        lose(simulated, 0, ledger_id, 2)
        assert await read_ledger(cluster, options_of(*words, "--first", "2")) == 0
        assert "three" in capsys.readouterr().out
        assert await read_ledger(cluster, options_of(*words, "--bookie", "b1")) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[-1] == "entry 2  missing: the bookie says that it has none"
        assert await read_ledger(cluster, options_of(*words, "--json", "--last", "0")) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["confirmed"] is False
        assert said.err.strip() == beyond
        damage(simulated, 0, ledger_id, 1)
        assert await read_ledger(cluster, options_of(*words, "--bookie", "b1")) == 1

    run(scenario)


def test_a_bookie_that_does_not_say_what_it_has_is_named(capsys: Capture) -> None:
    async def scenario(simulated: Simulated, cluster: Cluster) -> None:
        ledger = str(await simulated.write(b"one", b"two", copies=2, is_open=True))
        await cluster.coordination.delete("/ledgers/available/b2")
        await read_ledger(cluster, options_of("read-ledger", ledger))
        assert "bookie b2 does not say what it has: " in capsys.readouterr().err

    run(scenario)
