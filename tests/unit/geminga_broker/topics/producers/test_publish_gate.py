"""Proves who may publish, how fast and whether in the clear, and that this costs nothing if off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.geminga_broker.clients_and_logs import NotedSession, producer_of
from tests.unit.geminga_broker.topics.producers.lenient_topic import TOPIC

from geminga_broker.errors import InvalidRequest, NotAllowed, ProducerBusy
from geminga_broker.managed_ledger.writing.append_request import AppendRequest
from geminga_broker.policies.publish import PublishLimits, PublishPolicies
from geminga_broker.topics.decisions.publish_rate import PublishRate
from geminga_broker.topics.producers.producer import Producer
from geminga_broker.topics.producers.producers import Producers
from geminga_broker.topics.producers.publish_gate import PublishGate
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.event_loop.clock import SimulatedClock

ENCRYPTED = PublishPolicies(requires_encryption=True)
SLOW = PublishPolicies(limits=PublishLimits(messages_per_s=10))


def publisher(name: str, *, is_encrypting: bool = False) -> Producer:
    return producer_of(
        NotedSession(),
        name,
        is_encrypting=is_encrypting,
        on_closed=lambda gone: gone.session.send(b"closed"),
    )


def came_back_to(producers: Producers, name: str) -> None:
    """The client of this producer is on another connection now."""
    present = producers.by_name.get(name)
    assert present is not None
    present.is_client_gone = True


def gate_with(*names: str, broker_rate: PublishRate | None = None) -> tuple[PublishGate, Producers]:
    producers = Producers("t", TOPIC)
    for name in names:
        producers.add(publisher(name))
    return PublishGate("t", producers, SimulatedClock(), broker_rate), producers


def item_of(producer: Producer, *, is_encrypted: bool) -> AppendRequest:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if is_encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
    return encode_payload(metadata, b"text"), 1, producer, 0, 0


def take_nothing(producer: Producer, requests: Sequence[AppendRequest]) -> None:
    del producer, requests


def test_rules_that_are_off_add_no_step() -> None:
    gate, _ = gate_with()
    gate.apply(PublishPolicies())
    assert gate.step_before(take_nothing) is take_nothing


def test_only_so_many_producers_are_of_one_host() -> None:
    gate, producers = gate_with("a", "b")
    elsewhere = producers.by_name.get("a")
    assert elsewhere is not None
    elsewhere.session.address = "/10.0.0.9:1"
    gate.apply(PublishPolicies(producers_per_host_max=2))
    gate.check(publisher("c"))
    producers.add(publisher("c"))
    with pytest.raises(ProducerBusy) as refused:
        gate.check(publisher("d"))
    assert str(refused.value) == "Topic 't' reached max same address producers limit"
    came_back_to(producers, "b")
    gate.check(publisher("b"))


def test_one_producer_too_many_is_refused_and_one_that_comes_back_let_in() -> None:
    gate, producers = gate_with("a", "b")
    for producers_max, is_refused in ((0, False), (2, True), (3, False)):
        gate.apply(PublishPolicies(producers_max=producers_max))
        if is_refused:
            with pytest.raises(ProducerBusy, match="Topic 't' reached max producers limit"):
                gate.check(publisher("c"))
        else:
            gate.check(publisher("c"))
    gate.apply(PublishPolicies(producers_max=2))
    came_back_to(producers, "a")
    gate.check(publisher("a"))
    assert len(producers.by_name) == 2


def test_where_encryption_is_required_producers_that_do_not_encrypt_are_closed() -> None:
    gate, producers = gate_with("open")
    producers.add(publisher("closed", is_encrypting=True))
    gate.apply(ENCRYPTED)
    with pytest.raises(InvalidRequest, match="Encryption is required in t"):
        gate.check(publisher("other"))
    gate.check(publisher("other", is_encrypting=True))
    gate.disconnect_disallowed()
    assert [each.name for each in producers.by_name.values()] == ["closed"]


def test_a_message_in_the_clear_is_refused_and_those_beside_it_are_taken() -> None:
    gate, _ = gate_with()
    gate.apply(ENCRYPTED)
    sender, taken = publisher("a", is_encrypting=True), list[AppendRequest]()
    items = [item_of(sender, is_encrypted=each) for each in (True, False, True)]
    gate.step_before(lambda _, requests: taken.extend(requests))(sender, items)
    assert taken == [items[0], items[2]]
    session = sender.session
    assert isinstance(session, NotedSession)
    (refused,) = session.commands()
    assert refused.send_error.error == api.MetadataError


def test_what_a_later_step_refuses_beside_a_refused_message_is_told_once() -> None:
    """A run that is begun is not begun again for it."""
    gate, _ = gate_with()
    gate.apply(ENCRYPTED)
    sender, taken = publisher("a", is_encrypting=True), list[AppendRequest]()
    items = [item_of(sender, is_encrypted=each) for each in (True, True, False, True)]

    def refuse_the_second(_: Producer, requests: Sequence[AppendRequest]) -> None:
        if any(each is items[1] for each in requests):
            raise NotAllowed("too large")
        taken.extend(requests)

    gate.step_before(refuse_the_second)(sender, items)
    assert taken == [items[0], items[3]]
    session = sender.session
    assert isinstance(session, NotedSession)
    assert len(session.commands()) == 2


def test_a_client_that_publishes_too_fast_is_held_back_until_it_may_or_the_limit_ends() -> None:
    broker_rate = PublishRate(PublishLimits(messages_per_s=1000), 0.0)
    gate, _ = gate_with(broker_rate=broker_rate)
    gate.apply(SLOW)
    sender = publisher("a")
    session = sender.session
    assert isinstance(session, NotedSession)
    item = item_of(sender, is_encrypted=False)
    gate.step_before(take_nothing)(sender, [item] * 10)
    assert session.throttles == []
    gate.step_before(take_nothing)(sender, [item] * 10)
    (wait_s,) = session.throttles
    assert gate.pauses == 1
    assert wait_s(0.0) == pytest.approx(1.0)
    assert wait_s(1.5) == 0
    gate.apply(PublishPolicies())
    assert wait_s(0.0) == 0
