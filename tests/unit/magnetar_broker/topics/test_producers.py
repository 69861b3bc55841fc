"""Proves who may produce: names, reconnects, and the access modes of PIP-68."""

from __future__ import annotations

import pytest
from tests.unit.magnetar_broker.topics.stand_ins import NotedSession

from magnetar_broker.errors import ProducerBusy, ProducerFenced
from magnetar_broker.topics.producers import AccessMode, Producer, Producers


def producer(
    name: str,
    *,
    session: NotedSession | None = None,
    epoch: int = 0,
    mode: AccessMode = AccessMode.SHARED,
    closed: list[str] | None = None,
) -> Producer:
    noted = closed if closed is not None else []
    return Producer(
        session or NotedSession(),
        1,
        name,
        epoch=epoch,
        is_name_given=True,
        access_mode=mode,
        metadata={},
        connected_at_ms=0,
        on_closed=lambda gone: noted.append(gone.name),
    )


def test_a_name_is_taken_once() -> None:
    producers = Producers("t")
    producers.add(producer("p"))
    with pytest.raises(ProducerBusy, match="already connected"):
        producers.add(producer("p"))


def test_a_reconnected_producer_replaces_its_earlier_self() -> None:
    producers, closed = Producers("t"), list[str]()
    earlier = producer("p", closed=closed)
    producers.add(earlier)
    later = producer("p", epoch=1)
    producers.add(later)
    assert producers.get("p") is later
    assert closed == ["p"]
    assert earlier.is_closed
    producers.remove(earlier)
    assert producers.get("p") is later


def test_a_removed_producer_gives_back_what_it_had_on_its_way() -> None:
    producers, session = Producers("t"), NotedSession()
    going = producer("p", session=session)
    going.bytes_in, session.unconfirmed = 70, 70
    going.bytes_confirmed = 0
    producers.add(going)
    producers.remove(going)
    assert session.unconfirmed == 0
    producers.remove(going)
    assert session.unconfirmed == 0


@pytest.mark.parametrize(
    ("present", "wanted", "error"),
    [
        (AccessMode.EXCLUSIVE, AccessMode.SHARED, ProducerBusy),
        (AccessMode.EXCLUSIVE, AccessMode.EXCLUSIVE, ProducerFenced),
        (AccessMode.SHARED, AccessMode.EXCLUSIVE, ProducerFenced),
        (AccessMode.SHARED, AccessMode.WAIT_FOR_EXCLUSIVE, ProducerBusy),
    ],
)
def test_modes_that_exclude_each_other_are_refused(
    present: AccessMode, wanted: AccessMode, error: type[Exception]
) -> None:
    producers = Producers("t")
    producers.add(producer("first", mode=present))
    with pytest.raises(error):
        producers.add(producer("second", mode=wanted))


def test_fencing_closes_everybody_else() -> None:
    producers, closed = Producers("t"), list[str]()
    for name in ("a", "b"):
        producers.add(producer(name, closed=closed))
    producers.add(producer("mine", mode=AccessMode.EXCLUSIVE_WITH_FENCING))
    assert sorted(closed) == ["a", "b"]
    assert [each.name for each in producers] == ["mine"]
    with pytest.raises(ProducerBusy):
        producers.add(producer("late"))
