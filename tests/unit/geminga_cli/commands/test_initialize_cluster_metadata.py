"""Proves the options of `geminga initialize-cluster-metadata`."""

from __future__ import annotations

import pytest

from geminga_cli.commands.initialize_cluster_metadata import main, zookeeper_hosts


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
