"""A cookie is the text that BookKeeper writes into ZooKeeper and into each directory."""

from __future__ import annotations

import pytest

from geminga_protocol.records.bookies.cookies import Cookie, cookie_path
from geminga_protocol.records.errors import MalformedRecord, UnsupportedRecord

COOKIE = Cookie(
    bookie_id="bookie-7",
    journal_dirs=("/j1", "/j2"),
    ledger_dirs=("/l1", "/l2"),
    instance_id="d88a2434",
    index_dirs=("/i1",),
)
TEXT = (
    '5\nbookieHost: "bookie-7"\njournalDir: "/j1,/j2"\nledgerDirs: "2\\t/l1\\t/l2"\n'
    'instanceId: "d88a2434"\nindexDirs: "1\\t/i1"\n'
)


def test_a_cookie_is_its_text() -> None:
    assert COOKIE.encode() == TEXT.encode()
    assert Cookie.decode(TEXT.encode()) == COOKIE


def test_what_was_not_set_is_not_written() -> None:
    cookie = Cookie(bookie_id="b", journal_dirs=("/j",), ledger_dirs=("/l",))
    assert b"instanceId" not in cookie.encode()
    assert b"indexDirs" not in cookie.encode()
    assert Cookie.decode(cookie.encode()) == cookie


def test_directories_with_any_letters_come_back() -> None:
    cookie = Cookie(bookie_id="b", journal_dirs=('/jöurnal "1"',), ledger_dirs=("/l\\1",))
    assert cookie.encode().isascii()
    assert Cookie.decode(cookie.encode()) == cookie


def test_an_old_layout_is_refused_by_its_version() -> None:
    with pytest.raises(UnsupportedRecord, match="layout version 3"):
        Cookie.decode(b"3\nhost:3181\n/j\n1\t/l\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "five\n",
        "-5\n",
        "5\n",
        "5\nnonsense",
        '5\nbookieHost: "b"\njournalDir: "/j"\n',
        '5\nbookieHost: "b"\njournalDir: "/j"\nledgerDirs: "2\\t/l"\n',
        '5\nbookieHost: "b"\njournalDir: "/j"\nledgerDirs: "/l"\n',
    ],
)
def test_what_is_no_cookie_is_refused(text: str) -> None:
    with pytest.raises(MalformedRecord):
        Cookie.decode(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(MalformedRecord):
        Cookie.decode(b"\xff\xfe")


def test_a_cookie_stands_under_its_bookies_id() -> None:
    assert cookie_path("bookie-7") == "/ledgers/cookies/bookie-7"
