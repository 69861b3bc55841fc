"""Proves the options of `geminga initialize-cluster-metadata`."""

from __future__ import annotations

import pytest

from geminga_cli.commands.initialize_cluster_metadata import main


@pytest.mark.parametrize("words", ["-c c1 -zk a:1", "-c c1 -uw http://h", "-zk a:1 -uw http://h"])
def test_what_is_missing_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err
