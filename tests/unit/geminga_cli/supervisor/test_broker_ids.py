"""Proves that no life of a cluster is forgotten while its broker may have nodes in ZooKeeper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geminga_cli.supervisor.broker_ids import IDS_MAX, BrokerIds


def life(directory: Path, own: str) -> BrokerIds:
    """A life that began, and was killed unless something else is done with it."""
    ids = BrokerIds(directory, "broker", own)
    ids.begin()
    return ids


def test_a_first_life_has_no_past(tmp_path: Path) -> None:
    assert life(tmp_path, "h:1").former == ()
    assert json.loads((tmp_path / "broker-ids.json").read_text()) == {
        "version": 1,
        "broker_ids": ["h:1"],
    }


def test_all_lives_that_were_cut_short_are_remembered(tmp_path: Path) -> None:
    for own in ("h:1", "h:2", "h:3"):
        life(tmp_path, own)
    assert life(tmp_path, "h:4").former == ("h:1", "h:2", "h:3")


def test_an_id_that_came_again_is_its_own_past_anyway(tmp_path: Path) -> None:
    life(tmp_path, "h:1")
    life(tmp_path, "h:2")
    assert life(tmp_path, "h:1").former == ("h:2",)


def test_former_lives_are_forgotten_when_their_sessions_are_over(tmp_path: Path) -> None:
    life(tmp_path, "h:1")
    life(tmp_path, "h:2").forget_former()
    assert life(tmp_path, "h:3").former == ("h:2",)


def test_a_life_that_ended_in_order_leaves_nothing_but_what_was_before_it(tmp_path: Path) -> None:
    life(tmp_path, "h:1")
    life(tmp_path, "h:2").end()
    second = life(tmp_path, "h:3")
    assert second.former == ("h:1",)
    second.forget_former()
    second.end()
    second.end()
    assert list(tmp_path.iterdir()) == []


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for port in range(100):
        life(tmp_path, f"h:{port}")
    kept = json.loads((tmp_path / "broker-ids.json").read_text())["broker_ids"]
    assert kept == [f"h:{port}" for port in range(100 - IDS_MAX, 100)]


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"{", b"\xff", b"[]", b"{}", b'{"broker_ids": 7}', b'{"broker_ids": [7, "", "a,b:1"]}'],
)
def test_a_file_that_cannot_be_understood_tells_nothing(tmp_path: Path, rubbish: bytes) -> None:
    (tmp_path / "broker-ids.json").write_bytes(rubbish)
    assert life(tmp_path, "h:1").former == ()


def test_each_broker_has_a_past_of_its_own(tmp_path: Path) -> None:
    """Two that took over what one dead broker left would take it from each other."""
    life(tmp_path, "h:1")
    BrokerIds(tmp_path, "broker-2", "h:2").begin()
    assert BrokerIds(tmp_path, "broker", "h:3").former == ("h:1",)
    assert BrokerIds(tmp_path, "broker-2", "h:4").former == ("h:2",)


def test_an_id_that_another_broker_has_now_is_no_past(tmp_path: Path) -> None:
    life(tmp_path, "h:1")
    assert BrokerIds(tmp_path, "broker", "h:2", others={"h:1"}).former == ()
