"""The cookies in ZooKeeper are listed, and one is written as the file VERSION that was lost."""

from __future__ import annotations

import json

import pytest
from tests.unit.geminga_bookie.admin.cluster import Cluster as Simulated
from tests.unit.geminga_cli.bookie_admin.simulated import options_of, run

from geminga_cli.bookie_admin.cluster import Cluster
from geminga_cli.bookie_admin.cookies import show_cookies
from geminga_cli.bookie_admin.errors import NoCookie
from geminga_protocol.records.bookies.cookies import Cookie, cookie_path

Capture = pytest.CaptureFixture[str]
COOKIE = Cookie(
    bookie_id="b9", journal_dirs=("/j1", "/j2"), ledger_dirs=("/l",), instance_id="cluster"
)


async def put(cluster: Cluster, name: str, value: bytes) -> None:
    await cluster.coordination.create(cookie_path(name), value, make_parents=True)


def test_the_text_is_what_the_version_file_holds(capsys: Capture) -> None:
    async def scenario(_: Simulated, cluster: Cluster) -> None:
        await put(cluster, "b9", COOKIE.encode())
        assert await show_cookies(cluster, options_of("cookie", "b9")) == 0
        assert capsys.readouterr().out.encode() == COOKIE.encode()
        assert await show_cookies(cluster, options_of("cookie", "b9", "--json")) == 0
        assert json.loads(capsys.readouterr().out) == {
            "bookie": "b9",
            "journal_directories": ["/j1", "/j2"],
            "ledger_directories": ["/l"],
            "error": None,
        }

    run(scenario)


def test_all_bookies_are_listed_with_their_directories(capsys: Capture) -> None:
    async def scenario(_: Simulated, cluster: Cluster) -> None:
        await put(cluster, "b9", COOKIE.encode())
        assert await show_cookies(cluster, options_of("cookie")) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["bookie", "journal_directories", "ledger_directories"]
        assert ["b9", "/j1,/j2", "/l"] in [line.split() for line in lines]

    run(scenario)


def test_one_that_cannot_be_read_is_something_wrong_and_never_goes_to_a_file(
    capsys: Capture,
) -> None:
    async def scenario(_: Simulated, cluster: Cluster) -> None:
        await put(cluster, "b9", b"garbage")
        assert await show_cookies(cluster, options_of("cookie", "b9")) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert "the cookie of b9 in ZooKeeper cannot be read" in told.err
        assert await show_cookies(cluster, options_of("cookie")) == 1
        assert "the cookie of b9 in ZooKeeper cannot be read" in capsys.readouterr().out

    run(scenario)


def test_a_bookie_that_is_not_known_is_answered_with_those_that_are() -> None:
    async def scenario(_: Simulated, cluster: Cluster) -> None:
        await put(cluster, "b9", COOKIE.encode())
        with pytest.raises(NoCookie, match=r"b10.* b9"):
            await show_cookies(cluster, options_of("cookie", "b10"))

    run(scenario)
