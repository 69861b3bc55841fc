"""Proves the options of `geminga initialize-cluster-metadata`, and that races do no harm."""

from __future__ import annotations

import pytest

from geminga_cli.commands.initialize_cluster_metadata import (
    ATTEMPTS_MAX,
    initialize,
    main,
    zookeeper_hosts,
)
from geminga_cluster import initialize as metadata
from geminga_cluster.initialize import ClusterUrls
from geminga_runtime.coordination import Coordination, VersionMismatch

URLS = ClusterUrls("http://h:8080", "pulsar://h:6650")


@pytest.mark.parametrize(
    ("store", "hosts"),
    [
        ("zk:a:2181", "a:2181"),
        ("zk:a:1,b:2/chroot", "a:1,b:2/chroot"),
        ("a:2181", "a:2181"),
        ("metadata-store:zk:a:2181", "a:2181"),
        ("zk://a:2181", "a:2181"),
    ],
)
def test_a_metadata_store_is_written_in_many_ways(store: str, hosts: str) -> None:
    assert zookeeper_hosts(store) == hosts


@pytest.mark.parametrize(
    "words",
    [
        "-c c1 -zk a:1",
        "-c c1 -uw http://h",
        "-zk a:1 -uw http://h",
        "-c c1 -zk a:1 -uw http://h -cs b:1",
    ],
)
def test_what_is_missing_or_not_supported_is_refused(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


class Rival:
    """Somebody who initialises the same cluster, so that the first attempts fail."""

    def __init__(self, wins: int) -> None:
        self.wins = wins
        self.attempts = 0

    async def __call__(self, *_arguments: object, **_options: object) -> None:
        self.attempts += 1
        if self.attempts <= self.wins:
            raise VersionMismatch("/admin/clusters")


async def test_a_race_that_was_lost_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rival = Rival(wins=2)
    monkeypatch.setattr(metadata, "initialize_cluster_metadata", rival)
    await initialize(nobody(), "c1", URLS)
    assert rival.attempts == 3


async def test_a_race_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rival = Rival(wins=100)
    monkeypatch.setattr(metadata, "initialize_cluster_metadata", rival)
    with pytest.raises(VersionMismatch):
        await initialize(nobody(), "c1", URLS)
    assert rival.attempts == ATTEMPTS_MAX


def nobody() -> Coordination:
    """A session that the rival never lets anybody use."""
    return None  # type: ignore[return-value]
