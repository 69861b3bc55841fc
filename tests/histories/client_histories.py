"""What clients published, read, asked for and acknowledged, as the wire shows it, and whether a
cluster that keeps its promises can have told them all that.

One ``ClientHistories`` takes the commands of all clients of a cluster (``listening``), simulated
ones and real ones, and hands them to the checkers: each topic's log (``LogHistory``), each
subscription's acknowledgements (``AcknowledgementHistory``), who writes a ledger (``OneTruth``).

When a broker sent a message is not known. What is: an answer says that the broker sent it, and all
that follows on that stream, after the question was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple
from zlib import crc32

from tests.histories.listening import SIZE_BYTES, ListeningNetwork
from tests.histories.owners import Owners

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand, MessageIdData
from geminga_protocol.pulsar.commands import parse_command
from geminga_protocol.pulsar.messages.integers import INT64_MAX, signed
from geminga_protocol.pulsar.messages.payload import parse_metadata, skip_broker_entry
from geminga_runtime.network import Network
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.histories.acknowledgements import AcknowledgementHistory, Asked
from geminga_simulation.histories.checkers import OneTruth
from geminga_simulation.histories.log import Append, LogHistory

# Behind every message of a batch.
ALL_OF_IT = 1 << 31
WORD_BITS = 64


class Entry(NamedTuple):
    """A position in a topic's log."""

    ledger_id: int
    entry_id: int

    @classmethod
    def of(cls, proto: MessageIdData) -> Entry:
        """The entry of a message id."""
        return cls(signed(proto.ledgerId), signed(proto.entryId))


class Place(NamedTuple):
    """A message's position: that of its entry, and its number in the batch."""

    ledger_id: int
    entry_id: int
    number: int


# A message as its producer made it: its name, its number, and the checksum of its bytes.
Content = tuple[str, int, int]


@dataclass(slots=True)
class Topic:
    """What was heard of one topic."""

    name: str
    log: LogHistory[Entry] = field(
        default_factory=lambda: LogHistory(may_repeat=True, is_read_in_part=True)
    )
    appends: dict[Content, Append[Entry]] = field(default_factory=dict[Content, "Append[Entry]"])
    # How many messages are in an entry.
    batches: dict[Entry, int] = field(default_factory=dict[Entry, int])
    subscriptions: dict[str, AcknowledgementHistory[Place]] = field(
        default_factory=dict[str, "AcknowledgementHistory[Place]"]
    )


class ClientHistories:
    """Of all clients of a cluster. ``now_s`` is the clock that all of them share.

    ``owners`` takes what is said of the owners of topics.
    ``has_former_owner(topic, broker)`` says whether what the broker with that URL tells now of a
    topic may come from a former owner: such a one delivers what it has, and answers with the end
    that it knew.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        owners: Owners,
        *,
        has_former_owner: Callable[[str, str], bool] = lambda _topic, _broker: False,
    ) -> None:
        self.now_s = now_s
        self.owners = owners
        self.has_former_owner = has_former_owner
        self.topics: dict[str, Topic] = {}
        self.writers = OneTruth()
        self.wrong: list[InvariantViolated] = []
        # How much was looked at, for those who doubt that it was anything.
        self.deliveries = self.confirmed = self.receipts = 0

    def __str__(self) -> str:
        return (
            f"{self.receipts} receipts, {self.deliveries} deliveries, {self.confirmed} "
            f"confirmed acknowledgements and {self.owners.claims} claims of ownership"
        )

    def network(self, network: Network, client: str) -> Network:
        """``network`` for ``client``, which is listened to from now on."""
        return ListeningNetwork(
            network, lambda host, port: Conversation(self, client, f"pulsar://{host}:{port}")
        )

    def topic(self, name: str) -> Topic:
        """What was heard of a topic."""
        return self.topics.setdefault(name, Topic(name))

    def check(self, *, receipts_min: int = 1) -> None:
        """Raise ``InvariantViolated`` where no cluster can have told all this, and where fewer
        receipts were heard: afterwards no client listened."""
        if self.receipts < receipts_min:
            raise InvariantViolated(f"there is little to be judged: {self}")
        for error in self.wrong:
            raise error
        self.owners.check()
        for name, topic in self.topics.items():
            try:
                topic.log.check()
            except InvariantViolated as error:
                raise InvariantViolated(f"{name}: {error}") from None
            for subscription, history in topic.subscriptions.items():
                try:
                    history.check()
                except InvariantViolated as error:
                    raise InvariantViolated(f"{subscription} of {name}: {error}") from None


@dataclass(slots=True, eq=False)
class _Consumer:
    """One attachment of a consumer; a subscription that is not durable ends with it."""

    topic: Topic
    settling: AcknowledgementHistory[Place] | None
    is_compacted: bool


class Conversation:
    """One stream, between ``client`` and ``broker`` (its URL)."""

    def __init__(self, histories: ClientHistories, client: str, broker: str) -> None:
        self._histories = histories
        self._client = client
        self._broker = broker
        # All that is sent from now on is sent after this.
        self._sent_after_s = -inf
        self._asked_s: dict[int, float] = {}
        self._pinged_s: list[float] = []
        # Topics whose owner was asked for, and since when the answer must have been true.
        self._looked_up: dict[int, tuple[str, float]] = {}
        self._settling: dict[int, tuple[AcknowledgementHistory[Place], Asked[Place]]] = {}
        self._lasts: dict[int, _Consumer] = {}
        self._producers: dict[int, Topic] = {}
        self._consumers: dict[int, _Consumer] = {}
        self._sends: dict[tuple[int, int], Append[Entry]] = {}

    # --- what the client says ---------------------------------------------------------------

    def sent(self, frame: bytes) -> None:
        """The client writes a command."""
        command, payload_start = parse_command(frame, SIZE_BYTES, len(frame))
        now_s = self._histories.now_s()
        match command.type:
            case BaseCommand.CONNECT:
                if command.connect.proxy_to_broker_url:
                    self._broker = f"pulsar://{command.connect.proxy_to_broker_url}"
            case BaseCommand.PING:
                self._pinged_s.append(now_s)
            case BaseCommand.LOOKUP:
                lookup = command.lookupTopic
                self._looks_up(lookup.request_id, lookup.topic, now_s)
            case BaseCommand.PRODUCER:
                self._looks_up(command.producer.request_id, command.producer.topic, now_s)
                self._asked_s[command.producer.request_id] = now_s
                topic = self._histories.topic(command.producer.topic)
                self._producers[command.producer.producer_id] = topic
            case BaseCommand.SUBSCRIBE:
                self._looks_up(command.subscribe.request_id, command.subscribe.topic, now_s)
                self._asked_s[command.subscribe.request_id] = now_s
                self._subscribes(command.subscribe)
            case BaseCommand.SEND:
                self._publishes(command.send, frame[payload_start:], now_s)
            case BaseCommand.ACK:
                self._acknowledges(command.ack, now_s)
            case BaseCommand.SEEK:
                seek = command.seek
                is_known = (
                    seek.HasField("message_id") and signed(seek.message_id.entryId) < INT64_MAX
                )
                place = Place(*Entry.of(seek.message_id), -1) if is_known else None
                self._moves(seek.consumer_id, seek.request_id, place, now_s)
            case BaseCommand.UNSUBSCRIBE:
                asked = command.unsubscribe
                self._moves(asked.consumer_id, asked.request_id, None, now_s)
            case BaseCommand.GET_LAST_MESSAGE_ID:
                last = command.getLastMessageId
                self._asked_s[last.request_id] = now_s
                self._lasts[last.request_id] = self._consumers[last.consumer_id]
            case _:
                pass

    def _looks_up(self, request_id: int, topic: str, now_s: float) -> None:
        known_s = self._histories.owners.knows_until_s(self._broker)
        self._looked_up[request_id] = (topic, min(known_s, now_s))

    def _subscribes(self, command: api.CommandSubscribe) -> None:
        topic = self._histories.topic(command.topic)
        settling = None
        if command.durable:
            settling = topic.subscriptions.setdefault(
                command.subscription, AcknowledgementHistory[Place]()
            )
        self._consumers[command.consumer_id] = _Consumer(topic, settling, command.read_compacted)

    def _publishes(self, command: api.CommandSend, payload: bytes, now_s: float) -> None:
        topic = self._producers[command.producer_id]
        content = content_of(payload)
        append = topic.appends.get(content)
        if append is None:
            append = topic.log.append(self._client, content, now_s)
            topic.appends[content] = append
        self._sends[command.producer_id, command.sequence_id] = append

    def _acknowledges(self, command: api.CommandAck, now_s: float) -> None:
        consumer = self._consumers[command.consumer_id]
        history = consumer.settling
        if history is None:
            return
        if command.ack_type == api.CommandAck.Cumulative:
            (upto,) = command.message_id
            index = ALL_OF_IT if not any(upto.ack_set) else open_indexes(upto.ack_set)[0] - 1
            place = Place(*Entry.of(upto), index)
            asked = history.acknowledge_up_to(self._client, place, now_s)
        else:
            places: list[Place] = []
            for each in command.message_id:
                entry = Entry.of(each)
                left = set(open_indexes(each.ack_set))
                count = consumer.topic.batches.get(entry, 1)
                places += (Place(*entry, index) for index in range(count) if index not in left)
            asked = history.acknowledge(self._client, places, now_s)
        if command.HasField("request_id"):  # others are not answered
            self._asked_s[command.request_id] = now_s
            self._settling[command.request_id] = (history, asked)

    def _moves(self, consumer_id: int, request_id: int, place: Place | None, now_s: float) -> None:
        self._asked_s[request_id] = now_s
        history = self._consumers[consumer_id].settling
        if history is not None:
            self._settling[request_id] = (history, history.move(self._client, place, now_s))

    # --- what the client is told ------------------------------------------------------------

    def received(self, frame: bytes) -> None:
        """The client gets a command."""
        command, payload_start = parse_command(frame, SIZE_BYTES, len(frame))
        match command.type:
            case BaseCommand.PONG:
                if self._pinged_s:
                    self._heard_since(self._pinged_s.pop(0))
            case BaseCommand.SEND_RECEIPT:
                self._has_receipt(command.send_receipt)
            case BaseCommand.MESSAGE:
                self._is_sent(command.message, frame[payload_start:])
            case BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE:
                self._has_last(command.getLastMessageIdResponse)
            case _:
                self._has_answer(command)

    def _has_answer(self, command: BaseCommand) -> None:
        """To what is done or refused as a whole."""
        match command.type:
            case BaseCommand.LOOKUP_RESPONSE:
                answer = command.lookupTopicResponse
                if answer.response == api.CommandLookupTopicResponse.Connect:
                    self._has_owner(answer.request_id, answer.brokerServiceUrl)
            case BaseCommand.PRODUCER_SUCCESS:
                self._has_owner(command.producer_success.request_id, self._broker)
                self._answered(command.producer_success.request_id)
            case BaseCommand.SUCCESS:
                self._has_owner(command.success.request_id, self._broker)
                self._settled(command.success.request_id)
            case BaseCommand.ACK_RESPONSE if not command.ackResponse.HasField("error"):
                self._settled(command.ackResponse.request_id)
            case BaseCommand.ACK_RESPONSE:
                self._answered(command.ackResponse.request_id)
            case BaseCommand.ERROR:
                self._answered(command.error.request_id)
            case _:
                pass

    def _heard_since(self, asked_s: float) -> None:
        self._sent_after_s = max(self._sent_after_s, asked_s)

    def _answered(self, request_id: int) -> float | None:
        """When the question was asked, if it was and has no answer yet."""
        self._settling.pop(request_id, None)
        asked_s = self._asked_s.pop(request_id, None)
        if asked_s is not None:
            self._heard_since(asked_s)
        return asked_s

    def _settled(self, request_id: int) -> None:
        settling = self._settling.pop(request_id, None)
        if settling is not None:
            history, asked = settling
            history.confirm(asked, self._histories.now_s(), stream=self)
            self._histories.confirmed += 1
        self._answered(request_id)

    def _has_owner(self, request_id: int, owner: str) -> None:
        """``owner`` serves what was asked for; so it is, too, where a broker takes a producer."""
        looked_up = self._looked_up.pop(request_id, None)
        if looked_up is not None:
            topic, since_s = looked_up
            self._histories.owners.claim(
                *(self._client, topic, owner), called_s=since_s, returned_s=self._histories.now_s()
            )

    def _has_receipt(self, receipt: api.CommandSendReceipt) -> None:
        append = self._sends.pop((receipt.producer_id, receipt.sequence_id), None)
        if append is None:
            return
        if append.returned_s == inf:
            append.returned_s = self._histories.now_s()
        entry = Entry.of(receipt.message_id)
        if entry.ledger_id < 0:  # that of a repeat, which was dropped, is not told
            return
        self._histories.receipts += 1
        append.position = append.position or entry
        try:
            self._histories.writers.observe(f"the writer of ledger {entry.ledger_id}", self._broker)
        except InvariantViolated as error:
            self._histories.wrong.append(error)

    def _has_last(self, answer: api.CommandGetLastMessageIdResponse) -> None:
        consumer = self._lasts.pop(answer.request_id, None)
        asked_s = self._answered(answer.request_id)
        entry = Entry.of(answer.last_message_id)
        if consumer is None or asked_s is None or consumer.is_compacted:
            return
        # A topic is empty again when all of it is trimmed away, which no client sees.
        if entry.entry_id < 0 or self._may_be_former(consumer.topic):
            return
        now_s = self._histories.now_s()
        consumer.topic.log.last(self._client, entry, called_s=asked_s, returned_s=now_s)

    def _may_be_former(self, topic: Topic) -> bool:
        return self._histories.has_former_owner(topic.name, self._broker)

    def _is_sent(self, command: api.CommandMessage, payload: bytes) -> None:
        consumer = self._consumers[command.consumer_id]
        now_s = self._histories.now_s()
        entry = Entry.of(command.message_id)
        if not consumer.is_compacted:  # compaction makes new bytes of a batch
            content = content_of(payload)
            consumer.topic.log.read(self._client, entry, content, called_s=-inf, returned_s=now_s)
        count = max(parse_metadata(payload).num_messages_in_batch, 1)
        consumer.topic.batches[entry] = count
        if consumer.settling is None or self._may_be_former(consumer.topic):
            return
        self._histories.deliveries += 1
        for index in open_indexes(command.ack_set) or range(count):
            consumer.settling.deliver(
                self._client,
                Place(*entry, index),
                sent_after_s=self._sent_after_s,
                arrived_s=now_s,
                stream=self,
            )


def content_of(payload: bytes) -> Content:
    """What the bytes behind a SEND or MESSAGE are, whatever the broker put before them."""
    metadata = parse_metadata(payload)
    start = skip_broker_entry(payload, 0, len(payload))
    return metadata.producer_name, metadata.sequence_id, crc32(memoryview(payload)[start:])


def open_indexes(ack_set: Sequence[int]) -> list[int]:
    """Which messages of a batch are not acknowledged, by a set that names some; else none."""
    return [
        WORD_BITS * place + bit
        for place, word in enumerate(ack_set)
        for bit in range(WORD_BITS)
        if word >> bit & 1
    ]
