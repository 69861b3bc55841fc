"""What passes a client's streams reaches the checkers as what it is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import inf

import pytest
from tests.histories.client_histories import ClientHistories, Conversation, open_indexes
from tests.histories.listening import Ear
from tests.histories.owners import Owners

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, MessageIdData
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.ownership import Change

TOPIC = "persistent://public/default/log"
BUNDLE = "/namespace/public/default/0x00000000_0xffffffff"
ONE, OTHER = "pulsar://one:6650", "pulsar://other:6650"


class Clients:
    """Streams of which each command takes a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.knows_until_s = inf
        self.has_former_owner = False
        self.owners = Owners(lambda _: self.knows_until_s)
        self.owned(Change.ACQUIRED, ONE, 0)
        self.histories = ClientHistories(
            lambda: self.now_s,
            self.owners,
            has_former_owner=lambda _topic, _broker: self.has_former_owner,
        )

    def stream(self, broker: str = ONE) -> Stream:
        return Stream(self, Conversation(self.histories, "client", broker))

    def owned(self, change: Change, broker: str, at_s: float) -> None:
        self.owners.changed(change, BUNDLE, broker, called_s=at_s, returned_s=at_s)

    def check(self) -> None:
        self.histories.check(receipts_min=0)


class Stream:
    """A stream with a consumer of one subscription and a producer, both number 1."""

    def __init__(self, clients: Clients, conversation: Ear) -> None:
        self._clients = clients
        self._conversation = conversation
        self._request_id = 0
        self.asks(
            subscribe=api.CommandSubscribe(
                topic=TOPIC,
                subscription="sub",
                subType=api.CommandSubscribe.Shared,
                consumer_id=1,
                request_id=self.next_id(),
            )
        )
        self.asks(
            producer=api.CommandProducer(topic=TOPIC, producer_id=1, request_id=self.next_id())
        )

    def next_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def asks(self, payload: bytes = b"", **part: object) -> int:
        self._clients.now_s += 1
        self._conversation.sent(frame(payload, **part))
        return self._request_id

    def hears(self, payload: bytes = b"", **part: object) -> None:
        self._clients.now_s += 1
        self._conversation.received(frame(payload, **part))

    def acknowledges(self, entry: int, *left: int, has_answer: bool = True) -> None:
        message_id = MessageIdData(ledgerId=7, entryId=entry, ack_set=left)
        request_id = self.asks(
            ack=api.CommandAck(
                consumer_id=1,
                ack_type=api.CommandAck.Individual,
                message_id=[message_id],
                request_id=self.next_id(),
            )
        )
        if has_answer:
            self.hears(ackResponse=api.CommandAckResponse(consumer_id=1, request_id=request_id))

    def is_sent(self, entry: int, *, batch: int = 1, left: Sequence[int] = ()) -> None:
        message_id = MessageIdData(ledgerId=7, entryId=entry)
        message = api.CommandMessage(consumer_id=1, message_id=message_id, ack_set=left)
        self.hears(message_of(entry, batch), message=message)

    def publishes(self, entry: int) -> None:
        self.asks(message_of(entry), send=api.CommandSend(producer_id=1, sequence_id=entry))

    def has_receipt(self, entry: int, ledger: int = 7) -> None:
        message_id = MessageIdData(ledgerId=ledger, entryId=entry)
        receipt = api.CommandSendReceipt(producer_id=1, sequence_id=entry, message_id=message_id)
        self.hears(send_receipt=receipt)

    def looks_up(self, owner: str) -> None:
        request_id = self.next_id()
        self.asks(lookupTopic=api.CommandLookupTopic(topic=TOPIC, request_id=request_id))
        self.hears(
            lookupTopicResponse=api.CommandLookupTopicResponse(
                brokerServiceUrl=owner,
                response=api.CommandLookupTopicResponse.Connect,
                request_id=request_id,
            )
        )

    def pings(self) -> None:
        self.asks(ping=api.CommandPing())
        self.hears(pong=api.CommandPong())


def frame(payload: bytes = b"", **part: object) -> bytes:
    ((name, value),) = part.items()
    fields = BaseCommand.DESCRIPTOR.fields_by_name
    command = BaseCommand(type=fields[name].number)  # type: ignore[arg-type]
    getattr(command, name).CopyFrom(value)
    body = command.SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(payload), len(body)) + body + payload


def message_of(number: int, batch: int = 1) -> bytes:
    metadata = api.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    if batch > 1:
        metadata.num_messages_in_batch = batch
    return encode_payload(metadata, b"%d" % number)


def test_a_stream_that_has_confirmed_an_acknowledgement_brings_the_message_no_more() -> None:
    clients = Clients()
    stream = clients.stream()
    for each in range(3):
        stream.publishes(each)
        stream.has_receipt(each)
        stream.is_sent(each)
    stream.acknowledges(1)
    stream.is_sent(2)
    clients.check()
    stream.is_sent(1)
    with pytest.raises(
        InvariantViolated, match=r"(?s)sub of .*entry_id=1, number=0.* acknowledged it"
    ):
        clients.check()


def test_another_stream_may_bring_what_was_on_its_way_until_it_has_answered() -> None:
    clients = Clients()
    stream, other = clients.stream(), clients.stream()
    stream.publishes(1)
    stream.acknowledges(1)
    other.is_sent(1)
    clients.check()
    other.pings()
    other.is_sent(1)
    with pytest.raises(InvariantViolated, match="1 came again"):
        clients.check()


def test_a_stream_that_was_opened_later_brings_nothing_that_was_acknowledged() -> None:
    clients = Clients()
    stream = clients.stream()
    stream.publishes(1)
    stream.acknowledges(1)
    later = clients.stream()
    later.hears(success=api.CommandSuccess(request_id=1))
    later.is_sent(1)
    with pytest.raises(InvariantViolated, match="1 came again"):
        clients.check()


def test_a_former_owner_may_deliver_what_it_has() -> None:
    clients = Clients()
    stream = clients.stream()
    stream.publishes(1)
    stream.acknowledges(1)
    clients.has_former_owner = True
    stream.is_sent(1)
    clients.check()


def test_messages_of_a_batch_are_acknowledged_one_by_one() -> None:
    clients = Clients()
    stream = clients.stream()
    stream.asks(message_of(1, batch=3), send=api.CommandSend(producer_id=1, sequence_id=1))
    stream.is_sent(1, batch=3)
    stream.acknowledges(1, 0b101)
    stream.is_sent(1, batch=3, left=[0b101])
    clients.check()
    stream.acknowledges(1, 0b100)
    stream.is_sent(1, batch=3, left=[0b101])
    with pytest.raises(InvariantViolated, match=r"(?s)1 came again.*number=0"):
        clients.check()


def test_a_subscription_that_was_moved_delivers_again() -> None:
    clients = Clients()
    stream = clients.stream()
    stream.publishes(1)
    stream.acknowledges(1)
    to = MessageIdData(ledgerId=7, entryId=1)
    stream.asks(seek=api.CommandSeek(consumer_id=1, request_id=stream.next_id(), message_id=to))
    stream.is_sent(1)
    clients.check()


def test_receipts_and_messages_make_a_log() -> None:
    clients = Clients()
    stream = clients.stream()
    stream.publishes(2)
    stream.has_receipt(2)
    stream.publishes(1)
    stream.has_receipt(1)
    with pytest.raises(InvariantViolated, match=f"{TOPIC}: .* which comes behind"):
        clients.check()


def test_a_ledger_has_one_writer() -> None:
    clients = Clients()
    stream, other = clients.stream(ONE), clients.stream(OTHER)
    stream.publishes(1)
    stream.has_receipt(1)
    other.publishes(2)
    other.has_receipt(2)
    with pytest.raises(InvariantViolated, match=f"the writer of ledger 7 held '{ONE}' for one"):
        clients.check()


@pytest.mark.parametrize("knows_until_s", [1, inf])
def test_a_broker_that_knows_all_names_no_former_owner(knows_until_s: float) -> None:
    clients = Clients()
    stream = clients.stream(ONE)
    clients.owned(Change.RELEASED, ONE, 2)
    clients.owned(Change.ACQUIRED, OTHER, 2)
    clients.knows_until_s = knows_until_s
    clients.now_s = 5
    stream.looks_up(ONE)
    if knows_until_s < 2:
        clients.check()
    else:
        with pytest.raises(InvariantViolated, match=f"(?s)the owner of {TOPIC}.*{ONE} owns it"):
            clients.check()


def test_a_set_of_open_messages_may_have_several_words() -> None:
    assert open_indexes([]) == []
    assert open_indexes([-(1 << 63), 0b11]) == [63, 64, 65]
