"""Proves that a journal of a siege is judged as what it is, where it is known who owned what."""

from __future__ import annotations

import pytest
from tests.histories.test_client_histories import Clients, Stream
from tests.torture.evidence.journal import LATE_S, Journal, Reign, histories_of, reigns
from tests.torture.evidence.owners import Node, Poll

from geminga_simulation.errors import InvariantViolated

BUNDLE = "public/default/0x00000000_0xffffffff"
ONE, OTHER = "pulsar://one:6650", "pulsar://other:6650"
ONES, OTHERS = Node("http://one", 1, 10, ONE), Node("http://other", 2, 20, OTHER)
AGAIN = Node("http://one", 1, 30, ONE)


def polled(*seen: tuple[float, Node | None]) -> list[Poll]:
    """Each a second long."""
    return [Poll(at_s, at_s + 1, {BUNDLE: node} if node else {}) for at_s, node in seen]


# The owner is certain from 11 to 100, and from 121 to 200.
POLLS = polled((10, ONES), (100, ONES), (120, OTHERS), (150, OTHERS), (200, OTHERS))


class Siege:
    """What is said between a client and brokers, from a moment on."""

    def __init__(self) -> None:
        self.clients = Clients()
        self.journal = Journal(lambda: self.clients.now_s)

    def stream(self, host: str, at_s: float) -> Stream:
        self.clients.now_s = at_s
        return Stream(self.clients, self.journal.listen_to("witness", host, 6650))

    def check(self, polls: list[Poll] | None) -> None:
        histories_of(self.journal, polls).check(receipts_min=0)


def test_between_two_looks_that_see_one_generation_there_is_one_owner() -> None:
    assert reigns(POLLS) == [Reign(BUNDLE, ONE, 11, 100), Reign(BUNDLE, OTHER, 121, 200)]
    moved = polled((10, ONES), (20, None), (30, AGAIN), (40, ONES))
    assert reigns(moved) == []
    assert reigns(polled((10, None), (20, ONES), (30, ONES))) == [Reign(BUNDLE, ONE, 21, 30)]
    assert reigns([]) == []


def acknowledged(siege: Siege, at_s: float) -> Stream:
    stream = siege.stream("one", at_s)
    stream.publishes(1)
    stream.acknowledges(1)
    return stream


def test_a_message_that_comes_again_is_found_where_there_is_one_broker() -> None:
    siege = Siege()
    acknowledged(siege, 0).is_sent(1)
    with pytest.raises(InvariantViolated, match="1 came again"):
        siege.check(None)


@pytest.mark.parametrize(
    ("host", "at_s", "is_wrong"),
    [
        ("one", 50.0, True),
        ("other", 50.0, False),  # a former owner, or a later one
        ("one", 6 + LATE_S - 0.5, False),  # on its way from before
        ("one", 110.0, False),
        ("one", 150.0, False),
        ("other", 150.0, True),
    ],
)
def test_a_message_that_comes_again_from_the_certain_owner_is_found(
    host: str, at_s: float, *, is_wrong: bool
) -> None:
    siege = Siege()
    acknowledged(siege, 0)
    stream = siege.stream(host, at_s)
    stream.pings()
    stream.is_sent(1)
    if is_wrong:
        with pytest.raises(InvariantViolated, match="1 came again"):
            siege.check(POLLS)
    else:
        siege.check(POLLS)


@pytest.mark.parametrize(
    ("owner", "at_s", "is_wrong"),
    [
        (ONE, 50.0, False),
        (OTHER, 50.0, True),
        (ONE, 150.0, True),
        (ONE, 110.0, False),
        (OTHER, 99.0, False),  # the answer came when ZooKeeper had not been asked again
        (OTHER, 300.0, False),
    ],
)
def test_a_lookup_that_names_another_than_the_certain_owner_is_found(
    owner: str, at_s: float, *, is_wrong: bool
) -> None:
    siege = Siege()
    siege.stream("one", at_s - 2).looks_up(owner)
    if is_wrong:
        with pytest.raises(InvariantViolated, match=f"(?s)the owner of .*{owner} owns it"):
            siege.check(POLLS)
    else:
        siege.check(POLLS)
