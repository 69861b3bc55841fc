"""Proves who may produce: names, reconnects, and the access modes of PIP-68."""

from __future__ import annotations

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, producer_of
from tests.unit.geminga_broker.topics.producers.lenient_topic import TOPIC

from geminga_broker.errors import BrokerError, ProducerBusy, ProducerFenced, TopicFenced
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.producers import Producers
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.messages.payload import encode_broker_entry


def producer(
    name: str,
    *,
    session: NotedSession | None = None,
    epoch: int = 0,
    mode: AccessMode = AccessMode.SHARED,
    closed: list[str] | None = None,
    settled: list[tuple[str, BrokerError | None]] | None = None,
) -> Producer:
    noted = closed if closed is not None else []
    noted_settled = settled if settled is not None else []
    return producer_of(
        session or NotedSession(),
        name,
        epoch=epoch,
        access_mode=mode,
        on_closed=lambda gone: noted.append(gone.name),
        on_settled=lambda waiting, refusal: noted_settled.append((waiting.name, refusal)),
    )


def test_a_name_is_taken_once() -> None:
    producers = Producers("t", TOPIC)
    producers.add(producer("p"))
    with pytest.raises(ProducerBusy, match="already connected"):
        producers.add(producer("p"))


def test_a_reconnected_producer_replaces_its_earlier_self() -> None:
    producers, closed = Producers("t", TOPIC), list[str]()
    earlier = producer("p", closed=closed)
    producers.add(earlier)
    later = producer("p", epoch=1)
    with pytest.raises(ProducerBusy):
        producers.add(later)
    earlier.is_client_gone = True
    producers.add(later)
    assert producers.by_name.get("p") is later
    assert closed == ["p"]
    assert earlier.is_closed
    producers.remove(earlier)
    assert producers.by_name.get("p") is later


def test_a_removed_producer_gives_back_what_it_had_on_its_way() -> None:
    producers, session = Producers("t", TOPIC), NotedSession()
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
    ],
)
def test_modes_that_exclude_each_other_are_refused(
    present: AccessMode, wanted: AccessMode, error: type[Exception]
) -> None:
    producers = Producers("t", TOPIC)
    producers.add(producer("first", mode=present))
    with pytest.raises(error):
        producers.add(producer("second", mode=wanted))


def test_a_producer_that_fences_closes_all_others() -> None:
    producers, closed = Producers("t", TOPIC), list[str]()
    for name in ("a", "b"):
        producers.add(producer(name, closed=closed))
    producers.add(producer("mine", mode=AccessMode.EXCLUSIVE_WITH_FENCING))
    assert sorted(closed) == ["a", "b"]
    assert [each.name for each in producers.by_name.values()] == ["mine"]
    with pytest.raises(ProducerBusy):
        producers.add(producer("late"))


def test_fencing_closes_also_an_earlier_one_of_its_name() -> None:
    producers, closed = Producers("t", TOPIC), list[str]()
    producers.add(producer("mine", closed=closed))
    later = producer("mine", mode=AccessMode.EXCLUSIVE_WITH_FENCING)
    producers.add(later)
    assert closed == ["mine"]
    assert list(producers.by_name.values()) == [later]


WAIT = AccessMode.WAIT_FOR_EXCLUSIVE


@pytest.mark.parametrize("first_mode", [AccessMode.SHARED, AccessMode.EXCLUSIVE, WAIT])
def test_waiting_producers_are_let_in_one_after_the_other(first_mode: AccessMode) -> None:
    producers, settled = Producers("t", TOPIC), list[tuple[str, BrokerError | None]]()
    first = producer("first", mode=first_mode)
    second, third = (producer(name, mode=WAIT, settled=settled) for name in ("second", "third"))
    for each in (first, second, third):
        producers.add(each)
    assert (first.is_waiting, second.is_waiting, third.is_waiting) == (False, True, True)
    assert list(producers.by_name.values()) == [first]
    assert len(producers.waiting) == 2
    producers.remove(first)
    assert settled == [("second", None)]
    assert not second.is_waiting
    assert list(producers.by_name.values()) == [second]
    producers.remove(second)
    assert settled == [("second", None), ("third", None)]
    producers.remove(third)
    assert (len(producers.by_name), len(producers.waiting)) == (0, 0)


def test_a_producer_that_gives_up_waiting_is_passed_over() -> None:
    producers, settled = Producers("t", TOPIC), list[tuple[str, BrokerError | None]]()
    first = producer("first", mode=WAIT)
    second, third = (producer(name, mode=WAIT, settled=settled) for name in ("second", "third"))
    for each in (first, second, third):
        producers.add(each)
    producers.remove(second)
    producers.remove(first)
    assert settled == [("third", None)]


@pytest.mark.parametrize(
    ("mode", "error"),
    [(AccessMode.SHARED, ProducerBusy), (AccessMode.EXCLUSIVE, ProducerFenced)],
)
def test_no_producer_is_let_in_before_those_that_wait(
    mode: AccessMode, error: type[Exception]
) -> None:
    producers = Producers("t", TOPIC)
    producers.add(producer("first"))
    producers.add(producer("second", mode=WAIT))
    with pytest.raises(error, match="wait to be the exclusive one"):
        producers.add(producer("third", mode=mode))


def test_a_reconnected_exclusive_producer_keeps_its_place() -> None:
    producers, settled = Producers("t", TOPIC), list[tuple[str, BrokerError | None]]()
    first = producer("first", mode=WAIT)
    producers.add(first)
    producers.add(producer("second", mode=WAIT, settled=settled))
    first.is_client_gone = True
    again = producer("first", mode=WAIT, epoch=1)
    producers.add(again)
    assert not again.is_waiting
    assert (list(producers.by_name.values()), settled) == ([again], [])


def test_fencing_refuses_waiting_producers_too() -> None:
    producers, settled = Producers("t", TOPIC), list[tuple[str, BrokerError | None]]()
    producers.add(producer("first"))
    producers.add(producer("second", mode=WAIT, settled=settled))
    mine = producer("mine", mode=AccessMode.EXCLUSIVE_WITH_FENCING)
    producers.add(mine)
    ((name, refusal),) = settled
    assert name == "second"
    assert isinstance(refusal, ProducerFenced)
    assert list(producers.by_name.values()) == [mine]


def test_when_all_producers_are_closed_waiting_ones_are_refused() -> None:
    producers, settled, closed = (
        Producers("t", TOPIC),
        list[tuple[str, BrokerError | None]](),
        list[str](),
    )
    producers.add(producer("first", closed=closed))
    producers.add(producer("second", mode=WAIT, settled=settled, closed=closed))
    refusal = TopicFenced("t")
    producers.remove_all(refusal)
    assert (closed, settled) == (["first"], [("second", refusal)])
    assert (len(producers.by_name), len(producers.waiting)) == (0, 0)


def test_what_the_broker_writes_in_front_is_not_counted_as_sent() -> None:
    session = NotedSession()
    sender = producer("p", session=session)
    sender.has_stamps = True
    stamp = encode_broker_entry(api.BrokerEntryMetadata(broker_timestamp=1, index=4))
    sender.bytes_in, session.unconfirmed = 30, 30
    entries = [(number, stamp + bytes(15), 0) for number in range(2)]
    requests: list[AppendRequest] = [(stamp + bytes(15), 2, sender, 0, 0)] * 2
    assert sender.confirm(7, entries, requests) == (4, 30)
    assert (sender.bytes_confirmed, session.unconfirmed) == (30, 0)
    assert len(session.commands()) == 2
