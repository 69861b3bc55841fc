"""The producers of one topic: who may join, under which name, and who is fenced off.

Access modes and their answers are Pulsar's (PIP-68). A producer replaces one of its name whose
client is gone; where that one lives, it is refused. Who waits to be the exclusive one is let in,
first come first served, when nobody else is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol
from weakref import proxy

from geminga_broker.client_session import ClientSession
from geminga_broker.errors import BrokerError, ProducerBusy, ProducerFenced
from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, payload_of
from geminga_broker.managed_ledger.writing.broker_entry_metadata import stamp_bytes
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_send_error
from geminga_protocol.pulsar.enums import AccessMode
from geminga_protocol.pulsar.send import ReceiptEncoder
from geminga_server.metrics import Meter

# The message id in the receipt of a message that was stored before: nobody looks up where.
NOWHERE = -1


def _not_connected(_: Sequence[AppendRequest]) -> None:
    raise AssertionError("only a producer that is connected to a topic sends messages")


def _no_sequence_id() -> int:
    """Of the last message sent under a producer's name, where the topic does not keep it."""
    return -1


def _do_nothing() -> None:
    """Before a topic knows the producer there is nothing to disconnect."""


def _never_waits(_: Producer, __: BrokerError | None) -> None:
    raise AssertionError("who may wait says what is to be done then")


@dataclass(frozen=True, slots=True)
class ProducerRequest:
    """A PRODUCER command taken apart: what a client says of its producer.

    ``name`` is the client's, or what the broker gave it; ``epoch`` grows whenever the client opens
    the producer again; ``topic_epoch`` is the one that an exclusive producer was given before.
    """

    producer_id: int
    name: str
    epoch: int = 0
    access_mode: AccessMode = AccessMode.SHARED
    topic_epoch: int | None = None
    is_encrypting: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)


class Producer:
    """A connected producer, or one that ``is_waiting`` to be the exclusive one.

    ``on_closed`` tells its session that the topic let it go, ``on_settled`` that it waits no more:
    it is let in, or refused for that reason. The topic sets ``append_all``, the registry of its
    producers ``disconnect``.
    """

    def __init__(
        self,
        session: ClientSession,
        request: ProducerRequest,
        *,
        connected_at_ms: int,
        on_closed: Callable[[Producer], None],
        on_settled: Callable[[Producer, BrokerError | None], None] = _never_waits,
    ) -> None:
        self.session = session
        self.producer_id = request.producer_id
        self.name = request.name
        self.epoch = request.epoch
        self.access_mode = request.access_mode
        self.metadata = request.metadata
        self.connected_at_ms = connected_at_ms
        self.on_closed = on_closed
        self.on_settled = on_settled
        self.is_waiting = False
        # Nobody answered on its connection.
        self.is_client_gone = False
        self.is_encrypting = request.is_encrypting
        # As the client brought it, then as the topic gave it.
        self.topic_epoch = request.topic_epoch
        self.last_sequence_id: Callable[[], int] = _no_sequence_id
        self._receipt = ReceiptEncoder(request.producer_id).receipt
        # Those of several producers are equal where they take runs that have messages of all.
        # Of its schema, as the client is told it; empty where it has none.
        self.schema_version = b""
        self.append_all: Callable[[Sequence[AppendRequest]], None] = _not_connected
        self.disconnect: Callable[[], None] = _do_nothing
        self.meter = Meter(None, 0, 0, 0)
        self.is_closed = False
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_confirmed = 0
        # Of the messages, those that are a part (chunk) of one.
        self.chunks_in = 0
        # The broker writes something in front of what it stores.
        self.has_stamps = False
        self.entries_taken = 0
        self._entries_answered = 0
        # Answers to what is not appended (receipts of repeats, refusals), each with the number of
        # entries that are to be answered before: clients take any other order for a loss.
        self._answers: deque[tuple[int, bytes]] = deque()
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_chunking(self) -> bool:
        """Whether a chunk was sent: from then on it has to be looked for others."""
        return self.chunks_in > 0

    @property
    def is_numbering(self) -> bool:
        """Clients number what they send."""
        return True

    def replaces(self, other: Producer) -> bool:
        """Whether this takes the place of ``other``, whose name it has: under its id on its
        connection, or where its client is gone. A client that lives keeps its producer, whatever
        epoch another claims."""
        is_again = self.session is other.session and self.producer_id == other.producer_id
        return is_again or other.is_client_gone

    def confirm(
        self, ledger_id: int, entries: Sequence[Entry], requests: Sequence[AppendRequest]
    ) -> tuple[int, int]:
        """Send the receipts of a run of its entries; returns its messages and bytes, as it sent
        them."""
        receipt = self._receipt
        receipts: list[bytes] = []
        messages = size_bytes = 0
        if self.has_stamps:
            size_bytes -= sum(map(stamp_bytes, map(payload_of, requests)))
        run = zip(entries, requests, strict=True)
        for (entry_id, _, _), (payload, count, _, sequence_id, highest) in run:
            receipts.append(receipt(sequence_id, highest, ledger_id, entry_id))
            messages += count or 1
            size_bytes += len(payload)
        if not self.is_closed:
            if self._answers:
                receipts = self._with_answers(receipts)
            else:
                self._entries_answered += len(receipts)
            self.bytes_confirmed += size_bytes
            session = self.session
            session.out += receipts
            session.delivered(0)
            session.confirmed(size_bytes)
            if self._drained is not None:
                self.wake()
        return messages, size_bytes

    def _with_answers(self, receipts: list[bytes]) -> list[bytes]:
        """``receipts``, with the answers between them that waited for their turn."""
        merged: list[bytes] = []
        answers = self._answers
        for each in receipts:
            merged.append(each)
            self._entries_answered += 1
            while answers and answers[0][0] <= self._entries_answered:
                merged.append(answers.popleft()[1])
                self._entries_answered += 1
        return merged

    def confirm_repeat(self, request: AppendRequest) -> None:
        """Send the receipt of a message that is stored already and was taken last, in the order of
        sending: after those of what was sent before."""
        payload, _, _, sequence_id, highest = request
        self.bytes_confirmed += len(payload)
        self.session.confirmed(len(payload))
        self._answer(self._receipt(sequence_id, highest, NOWHERE, NOWHERE))

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """Tell the client that this message, which was taken last and counted as on its way, is
        not stored; in the order of sending if it is to go on."""
        payload, messages, _, sequence_id, highest = request
        self.messages_in -= messages or 1
        self.bytes_in -= len(payload)
        self.session.confirmed(len(payload))
        number = max(sequence_id, highest)
        code = api.ServerError.Value(error.code)
        # After any other error clients come back and send again what they have no receipt for, as
        # replicators do after this one.
        in_order = code == api.NotAllowedError and self.is_numbering
        self._answer(
            encode_send_error(self.producer_id, number, code, str(error)), in_order=in_order
        )

    def _answer(self, answer: bytes, *, in_order: bool = True) -> None:
        entries_before = self.entries_taken - 1
        if in_order and entries_before > self._entries_answered:
            self._answers.append((entries_before, answer))
            return
        self._entries_answered += 1
        self.session.send(answer)
        self.wake()

    def settle(self, refusal: BrokerError | None) -> None:
        """It waits no more: it is let in, or refused for that reason."""
        self.is_waiting = False
        self.on_settled(self, refusal)

    async def drained(self) -> None:
        """Return when every message that was taken has its receipt, or the topic let it go."""
        while not self.is_closed and self.bytes_confirmed < self.bytes_in:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def wake(self) -> None:
        """Let ``drained`` look again."""
        waiting, self._drained = self._drained, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class ProducersOwner(Protocol):
    """The topic, as far as its producers must know it."""

    def producer_left(self, producer: Producer) -> None:
        """One that was let in is here no more."""

    def producer_promoted(self, producer: Producer) -> None:
        """It is the turn of one that waits, which then is to be settled."""


class _NoOwner:
    """For producers of no topic."""

    def producer_left(self, producer: Producer) -> None:
        """Nobody wants to know."""

    def producer_promoted(self, producer: Producer) -> None:
        """Whoever waited long enough is let in at once."""
        producer.settle(None)


_NO_OWNER = _NoOwner()


class Producers:
    """The registry of a topic's producers, by name. It is empty only when nobody waits either."""

    __slots__ = ("_by_name", "_exclusive", "_owner", "_topic", "_waiting")

    def __init__(self, topic: str, owner: ProducersOwner | None = None) -> None:
        self._topic = topic
        self._owner: ProducersOwner = _NO_OWNER if owner is None else proxy(owner)
        self._by_name: dict[str, Producer] = {}
        self._exclusive: Producer | None = None
        # Those that wait, in the order of coming.
        self._waiting: dict[Producer, None] = {}

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def waiting_count(self) -> int:
        """How many wait to be the exclusive one."""
        return len(self._waiting)

    def get(self, name: str) -> Producer | None:
        """The connected producer of this name."""
        return self._by_name.get(name)

    async def ask_namesake(self, producer: Producer) -> None:
        """Find out whether the client of one of the same name is gone without a word."""
        present = self._by_name.get(producer.name)
        if (
            present is not None
            and producer.access_mode is not AccessMode.EXCLUSIVE_WITH_FENCING
            and not producer.replaces(present)
        ):
            present.is_client_gone = not await present.session.is_alive()

    def add(self, producer: Producer) -> None:
        """Let ``producer`` in, or wait. Raises ``ProducerBusy`` or ``ProducerFenced``."""
        holder = self._exclusive
        is_own = holder is not None and holder.name == producer.name and producer.replaces(holder)
        if not is_own:
            if producer.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE and self._by_name:
                producer.is_waiting = True
                self._waiting[producer] = None
                producer.disconnect = partial(self.remove, producer)
                return
            self._check_access(producer)
        self._make_room(producer)
        self._let_in(producer)
        producer.disconnect = partial(self.remove, producer)

    def _check_access(self, producer: Producer) -> None:
        holder = self._exclusive
        match producer.access_mode:
            case AccessMode.SHARED:
                if holder is not None or self._waiting:
                    raise ProducerBusy(self._taken())
            case AccessMode.EXCLUSIVE:
                if holder is not None or self._waiting:
                    raise ProducerFenced(self._taken())
                if self._by_name:
                    raise ProducerFenced("Topic has existing shared producers")
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                self._fence_all()
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                return  # nobody is there

    def _taken(self) -> str:
        if self._exclusive is None:
            return "Topic has producers that wait to be the exclusive one"
        return f"Topic has an existing exclusive producer: {self._exclusive.name}"

    def _make_room(self, producer: Producer) -> None:
        """Let its earlier self go. Raises ``ProducerBusy`` where that is somebody else."""
        present = self._by_name.get(producer.name)
        if present is None:
            return
        if not producer.replaces(present):
            raise ProducerBusy(
                f"Producer with name '{producer.name}' is already connected to topic "
                f"'{self._topic}'"
            )
        self._take_out(present)
        if present.session is not producer.session or (present.producer_id != producer.producer_id):
            present.on_closed(present)

    def _let_in(self, producer: Producer) -> None:
        self._by_name[producer.name] = producer
        if producer.access_mode is not AccessMode.SHARED:
            self._exclusive = producer

    def _fence_all(self) -> None:
        self._refuse_waiting(ProducerFenced("Fenced out"))
        for other in self:
            self._take_out(other)
            other.on_closed(other)

    def remove(self, producer: Producer) -> None:
        """Forget ``producer``; what it has on its way is stored and gets no receipt any more."""
        self._take_out(producer)
        if self._waiting and not self._by_name:
            following = next(iter(self._waiting))
            del self._waiting[following]
            self._let_in(following)
            self._owner.producer_promoted(following)

    def remove_all(self, refusal: BrokerError) -> None:
        """Let all go; those that wait are told why."""
        self._refuse_waiting(refusal)
        for producer in self:
            self._take_out(producer)
            producer.on_closed(producer)

    def let_go(self, producer: Producer) -> None:
        """Remove ``producer`` and tell its client so."""
        self.remove(producer)
        producer.on_closed(producer)

    def _refuse_waiting(self, refusal: BrokerError) -> None:
        waiting, self._waiting = self._waiting, {}
        for producer in waiting:
            producer.is_closed = True
            producer.settle(refusal)

    def _take_out(self, producer: Producer) -> None:
        self._waiting.pop(producer, None)
        producer.disconnect = _do_nothing
        producer.append_all = _not_connected  # which may know it: without that, it is freed at once
        if not producer.is_closed:
            producer.is_closed = True
            producer.wake()
            producer.session.confirmed(producer.bytes_in - producer.bytes_confirmed)
        if self._by_name.get(producer.name) is producer:
            del self._by_name[producer.name]
            self._owner.producer_left(producer)
        if self._exclusive is producer:
            self._exclusive = None
