"""Proves that every option of ``pulsar-perf`` is taken or refused with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geminga_cli.commands.perf import PARSERS, main

UPSTREAM = json.loads(
    (Path(__file__).parents[1] / "messaging" / "pulsar_client_words.json").read_text()
)


@pytest.mark.parametrize("load", ["produce", "consume"])
def test_every_option_of_pulsar_perf_is_known(load: str) -> None:
    known = PARSERS[load][1]()._option_string_actions
    assert set(UPSTREAM[f"perf {load}"]) - set(known) == set()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["produce", "t", "-txn"], "-txn is not supported: this client has no transactions"),
        (["consume", "t", "-c", "2"], "a connection to each broker"),
        (["produce", "a", "b", "-t", "3"], "-t 3 does not go with 2 topics"),
        (["consume", "t", "-ss", "a,b", "-ns", "3"], "-ns 3 does not go with 2 subscriptions"),
        (["latency", "a", "b"], "on one topic"),
        (["latency", "t", "-s", "15"], "16 bytes at least"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_a_load_that_there_is_not_is_refused_with_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["transaction"]) == main([]) == 2
    told = capsys.readouterr().err
    assert "no load 'transaction'" in told
    assert all(name in told for name in PARSERS)
