"""Each sub-command finds its function, wrong words and addresses are refused, and what cannot be
done ends with 2."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from geminga_cli.commands.bookie_admin import (
    SUB_COMMANDS,
    host_port,
    http_address,
    make_parser,
    zookeeper_hosts,
)
from geminga_cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", SUB_COMMANDS)
def test_what_a_sub_command_names_is_there(name: str) -> None:
    module, _, function = SUB_COMMANDS[name].does.partition(":")
    work = getattr(import_module(f"geminga_cli.bookie_admin.{module}"), function)
    assert callable(work)


def test_help_lists_every_sub_command(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bookie-admin", "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(name in told for name in SUB_COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ["bookie-admin"],
        ["bookie-admin", "no-such"],
        ["bookie-admin", "read-ledger", "-1"],
        ["bookie-admin", "read-ledger", "9" * 20],
        ["bookie-admin", "verify-ledger"],
        ["bookie-admin", "list-bookies", "--zookeeper", "z:1", "--data-dir", "d"],
        ["bookie-admin", "list-bookies", "--zookeeper", "nonsense"],
        ["bookie-admin", "force-gc", "b1", "--http", "nonsense"],
    ],
)
def test_wrong_words_end_with_two(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_without_a_cluster_it_says_what_would_be_right(tmp_path: Path, capsys: Capture) -> None:
    assert main(["bookie-admin", "list-bookies", "--data-dir", str(tmp_path)]) == 2
    assert "--zookeeper HOST:PORT" in capsys.readouterr().err


def test_a_file_that_is_not_there_ends_with_two(tmp_path: Path, capsys: Capture) -> None:
    missing = tmp_path / "000000000001.journal"
    assert main(["bookie-admin", "dump-journal", str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err
    assert not missing.exists()


def test_a_file_of_another_kind_is_something_wrong(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello")
    assert main(["bookie-admin", "dump-entry-log", str(path)]) == 1


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    files = []
    for number in range(2000):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(b"x")
    command = [sys.executable, "-m", "geminga_cli", "bookie-admin", "dump-journal"]
    with subprocess.Popen(
        [*command, *map(str, files)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_options_of_the_cluster_are_on_those_that_ask_it() -> None:
    parser = make_parser()
    assert parser.parse_args(["list-bookies"]).data_dir == Path("data")
    assert not hasattr(parser.parse_args(["dump-journal", "x"]), "zookeeper")


@pytest.mark.parametrize("words", ["zk1:2181", "127.0.0.1:1", "[::1]:65535", "a-b.c_d:80"])
def test_a_host_with_a_port_is_taken_as_it_is(words: str) -> None:
    assert host_port(words) == words


@pytest.mark.parametrize(
    "words", ["nonsense", "", ":2181", "zk:", "zk:0", "zk:65536", "zk:x", "::1:2181", "a b:1"]
)
def test_what_is_no_address_is_refused(words: str) -> None:
    for parse in (host_port, http_address, zookeeper_hosts):
        with pytest.raises(argparse.ArgumentTypeError, match="is not HOST:PORT"):
            parse(words)


def test_zookeeper_may_be_several_and_have_a_path() -> None:
    for words in ("a:1,b:2", "a:1/path/below", "a:1,b:2/path"):
        assert zookeeper_hosts(words) == words
    with pytest.raises(argparse.ArgumentTypeError, match="'b' is not HOST:PORT"):
        zookeeper_hosts("a:1,b/path")


def test_http_may_be_given_as_a_url() -> None:
    assert http_address("http://b1:8000/") == "b1:8000"
