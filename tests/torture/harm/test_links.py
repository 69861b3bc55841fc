"""Proves which links are cut, and that a link that was cut is whole again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack
from itertools import islice
from random import Random

import pytest
from tests.torture.harm.links import Cut, Cutter, LinkCut, link, link_cuts
from tests.torture.harm.wires import LOCALHOST, Relays

NAMES = ("east", "west", "north")
TIMEOUT_S = 30.0
LINK = link("east", "west")


def test_each_link_and_each_cluster_is_cut_in_each_way_once_in_every_turn() -> None:
    # Six links and three clusters, each in five ways.
    turn = list(islice(link_cuts(Random(1), NAMES), 45))
    assert len({(each.cut, each.links) for each in turn}) == 45
    alone = {each.links[0] for each in turn if len(each.links) == 1}
    assert alone == {link(a, b) for a in NAMES for b in NAMES if a != b}
    isolated = [each.links for each in turn if each.cut is Cut.BROKEN and len(each.links) > 1]
    assert sorted(map(len, isolated)) == [4, 4, 4]
    assert all(any(all(name in one for one in links) for name in NAMES) for links in isolated)


@pytest.fixture
def server() -> Generator[socket.socket]:
    with socket.create_server((LOCALHOST, 0)) as listening:
        listening.settimeout(TIMEOUT_S)
        yield listening


@pytest.fixture
def relays(server: socket.socket) -> Generator[Relays]:
    with Relays({LINK: f"{LOCALHOST}:{server.getsockname()[1]}"}) as relays:
        yield relays


def connected(relays: Relays) -> socket.socket:
    host, port = relays.addresses[LINK].split(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def is_broken_off(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except ConnectionError:
        return True


def test_a_broken_link_loses_its_connections_and_takes_none_until_it_is_healed(
    relays: Relays, server: socket.socket
) -> None:
    with ExitStack() as stack:
        near = stack.enter_context(connected(relays))
        far = stack.enter_context(server.accept()[0])
        far.settimeout(TIMEOUT_S)
        relays.refuse(LINK)
        assert is_broken_off(near)
        assert is_broken_off(far)
        assert is_broken_off(stack.enter_context(connected(relays)))
        relays.heal(LINK)
        near = stack.enter_context(connected(relays))
        far = stack.enter_context(server.accept()[0])
        near.sendall(b"?")
        assert far.recv(1) == b"?"


@pytest.mark.parametrize("cut", Cut)
def test_all_links_are_whole_when_the_cutter_ends(
    cut: Cut, relays: Relays, server: socket.socket
) -> None:
    begun = threading.Event()

    def forever() -> Generator[LinkCut]:
        yield LinkCut(0.0, Cut.BOTH_WAYS, (LINK,), 0.0)
        begun.set()
        yield LinkCut(0.0, cut, (LINK,), TIMEOUT_S)

    with Cutter(relays, forever()) as cutter:
        assert begun.wait(TIMEOUT_S)
    assert cutter.counts[Cut.BOTH_WAYS.value] >= 1
    with connected(relays) as near, server.accept()[0] as far:
        near.sendall(b"?")
        assert far.recv(1) == b"?"


def test_a_dying_link_lets_requests_through_until_it_breaks(
    relays: Relays, server: socket.socket
) -> None:
    cuts = iter([LinkCut(0.0, Cut.DYING, (LINK,), 2.0)])
    with connected(relays) as near, server.accept()[0] as far, Cutter(relays, cuts) as cutter:
        near.sendall(b"?")
        assert far.recv(1) == b"?"
        assert is_broken_off(near)
    assert cutter.counts == {Cut.DYING.value: 1}
