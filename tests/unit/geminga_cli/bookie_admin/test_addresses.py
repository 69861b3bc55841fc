"""Addresses are taken as they are, and what is none is refused before anything is connected to."""

from __future__ import annotations

import argparse

import pytest

from geminga_cli.bookie_admin.addresses import host_port, http_address, zookeeper_hosts


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
