"""Proves that the checker of owners finds each kind of double owner, and not what only moves."""

from __future__ import annotations

import pytest
from tests.torture.evidence.owners import Claims, Node, View, double_owners

BUNDLE = "public/default/0x00000000_0x80000000"
TOPIC = "persistent://public/default/t"
ONE, OTHER = "http://one", "http://other"
ONES, OTHERS = Node(ONE, 1, 10), Node(OTHER, 2, 20)
BOTH = Claims(frozenset({BUNDLE}), frozenset({TOPIC}))
SESSIONS = {ONE: 1, OTHER: 2}


def view(one: Claims, other: Claims, node: Node | None = ONES) -> View:
    return View({ONE: one, OTHER: other}, {BUNDLE: node} if node else {}, SESSIONS)


def test_one_owner_is_right() -> None:
    assert double_owners([view(BOTH, Claims())] * 2) == []


def test_what_moves_from_one_to_the_other_is_owned_once() -> None:
    # The first answered before it gave the bundle up, the other after it had acquired it.
    assert double_owners([view(BOTH, BOTH), view(Claims(), BOTH, OTHERS)]) == []
    assert double_owners([view(BOTH, Claims()), view(Claims(), BOTH, OTHERS)]) == []


@pytest.mark.parametrize(
    ("claims", "name"),
    [(Claims(bundles=BOTH.bundles), BUNDLE), (Claims(topics=BOTH.topics), TOPIC)],
)
def test_what_two_brokers_go_on_to_serve_is_found(claims: Claims, name: str) -> None:
    found = double_owners([view(BOTH, claims)] * 2)
    assert f"{name} is served by {ONE} and by {OTHER}" in found


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (None, "no node"),
        (OTHERS, f"{OTHER}'s in ZooKeeper"),
        (Node(ONE, 7, 10), "another session"),
    ],
)
def test_a_broker_that_serves_without_a_node_of_its_session_is_found(
    node: Node | None, words: str
) -> None:
    (found,) = double_owners([view(BOTH, Claims(), node)] * 2)
    assert words in found


def test_a_broker_that_did_not_answer_twice_proves_nothing() -> None:
    silent = View({OTHER: BOTH}, {BUNDLE: OTHERS}, SESSIONS)
    assert double_owners([view(BOTH, BOTH, OTHERS), silent]) == []
