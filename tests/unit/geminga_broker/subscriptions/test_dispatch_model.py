"""Proves, for each subscription type, that dispatching keeps its promises whatever consumers do.

Consumers come, leave, take, acknowledge (entries, up to an entry, parts of batches), give back,
seek and unsubscribe (alone, or by force) at random, messages are skipped and expire under their
hands, and dispatch rates come and go.
``Model`` is told the same and checks each message that a consumer is sent: that it was still to be
sent, to that one, in that order, within its permits; after each step, that no consumer that could
have a message was left without; and in the end, that nothing was forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_broker.clients_and_logs import (
    KeyedLog,
    NotedSession,
    Told,
    consumer_of,
    cursor_over,
)

from geminga_broker.errors import InvalidRequest
from geminga_broker.managed_ledger.acknowledgement.acknowledged import bits_set
from geminga_broker.managed_ledger.managed_ledger import ManagedLedger
from geminga_broker.managed_ledger.positions import Entry, Position
from geminga_broker.policies.dispatch import COUNT_ALL, DispatchLimit
from geminga_broker.subscriptions.consumer import Consumer
from geminga_broker.subscriptions.dispatch.rate_limiter import RateLimiter
from geminga_broker.subscriptions.distribution.active_consumer import choose_active
from geminga_broker.subscriptions.distribution.hash_ring import HashRing, ring_hash
from geminga_broker.subscriptions.subscription import Subscription
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.pulsar.messages.payload import encode_payload
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.loop import SimulatedLoop

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = SubscriptionType
TOPIC = "persistent://t/n/topic"
KEYS = "abcdef"
LEDGERS = ((1, 25), (2, 15))
ALL = [Position(ledger, entry) for ledger, entries in LEDGERS for entry in range(entries)]
CONSUMERS_MAX = 4
RATE_MIN = 20
# So few entries come with one read that consumers wait for several.
READ_ENTRIES_MAX = 6


def messages_in(position: Position) -> int:
    """How many messages the batch at ``position`` holds."""
    return position.entry_id % 3 + 1


class BatchLog(KeyedLog):
    """One whose entries are batches with a key each."""

    def entry(self, entry_id: int) -> Entry:
        count = messages_in(Position(1, entry_id))
        metadata = api.MessageMetadata(
            producer_name="p",
            sequence_id=entry_id,
            publish_time=1,
            partition_key=self.key(entry_id),
            num_messages_in_batch=count,
        )
        return entry_id, encode_payload(metadata, b"m"), count


class Client:
    """A consumer as its client sees it."""

    def __init__(self, name: str, permits: int) -> None:
        self.name = name
        self.permits = permits
        self.session = NotedSession()
        self.told = Told()
        self.consumer: Consumer = consumer_of(self.session, name, told=self.told)
        self.held: dict[Position, int] = {}

    def received(self) -> Iterator[api.CommandMessage]:
        """What has come since the last time."""
        for command in self.session.commands():
            if command.type == api.BaseCommand.MESSAGE:
                yield command.message
        self.session.out.clear()


class Model:
    """What is known of the subscription by looking at it from outside."""

    def __init__(self, kind: SubscriptionType) -> None:
        self.kind = kind
        self.clients: list[Client] = []
        self.left: dict[Position, int] = {each: (1 << messages_in(each)) - 1 for each in ALL}
        self.active: Client | None = None
        self.next_in_order = ALL[0]
        self.owners: dict[str, Client] = {}

    # What happens to it

    def changed(self) -> None:
        """Clients came or went."""
        ring = HashRing()
        for client in self.clients:
            ring.add(client.consumer)
        by_consumer = {client.consumer: client for client in self.clients}
        for key in KEYS if self.clients else "":
            chosen = ring.select(ring_hash(key.encode()))
            assert chosen is not None
            self.owners[key] = by_consumer[chosen]
        names = [(0, client.name) for client in self.clients]
        active = self.clients[choose_active(TOPIC, -1, names)] if names else None
        if active is not self.active:
            self.active = active
            self.rewind()

    def rewind(self) -> None:
        """What is delivered in order begins after the mark-delete position."""
        self.next_in_order = self.first_left()

    def first_left(self) -> Position:
        return min(self.left, default=Position(9, 9))

    def acknowledge(self, position: Position, remaining: int = 0) -> None:
        """Of ``position`` only the messages of ``remaining`` are left."""
        remaining &= self.left.get(position, 0)
        if remaining:
            self.left[position] = remaining
        else:
            self.left.pop(position, None)
        for client in self.clients:
            if position in client.held:
                client.held[position] = min(client.held[position], remaining.bit_count())
                if not remaining:
                    del client.held[position]

    def seek(self, position: Position) -> None:
        self.clients.clear()
        self.left = {each: (1 << messages_in(each)) - 1 for each in ALL if each >= position}
        self.changed()

    # What it checks

    def look(self) -> None:
        """Check all that was sent, and that no more could have been."""
        self.look_at_sent()
        for client in self.clients:
            if client.permits > 0:
                starving = [each for each in self.left if self.could_go_to(client, each)]
                assert not starving, f"{client.name} could have {starving}"

    def look_at_sent(self) -> None:
        """Check what was sent since the last time."""
        for client in self.clients:
            for message in client.received():
                name = message.message_id
                self.take(client, Position(name.ledgerId, name.entryId), tuple(message.ack_set))
            assert client.consumer.permits == client.permits
            assert client.consumer.unacknowledged >= 0
            if self.kind.tracks_entries:
                assert client.consumer.pending == client.held
                assert client.consumer.unacknowledged == sum(client.held.values())

    def take(self, client: Client, position: Position, ack_set: tuple[int, ...]) -> None:
        assert client.permits > 0, "sent without a permit"
        assert position in self.left, "sent though it is acknowledged"
        count = bits_set(ack_set) if ack_set else messages_in(position)
        assert count == self.left[position].bit_count(), "parts acknowledged are sent again"
        client.permits -= count
        if self.kind.tracks_entries:
            self.take_tracked(client, position, count)
        else:
            self.take_in_order(client, position)

    def take_tracked(self, client: Client, position: Position, count: int) -> None:
        assert not any(position in each.held for each in self.clients), "held by two"
        if self.kind is KEY_SHARED:
            assert self.owner(position) is client, "not the owner of the key"
            for lower in self.of_same_key(position):
                if lower < position:
                    assert lower in client.held, f"{position} overtakes {lower}"
            for other in self.clients:
                if other is not client:
                    assert not set(other.held) & set(self.of_same_key(position)), "key held by two"
        client.held[position] = count

    def take_in_order(self, client: Client, position: Position) -> None:
        assert client is self.active, "not the active consumer"
        expected = min(each for each in self.left if each >= self.next_in_order)
        assert position == expected, "not the next one"
        self.next_in_order = Position(position.ledger_id, position.entry_id + 1)

    def could_go_to(self, client: Client, position: Position) -> bool:
        """Whether an entry that is left should have been sent to ``client``, which has permits."""
        if not self.kind.tracks_entries:
            return client is self.active and position >= self.next_in_order
        if any(position in each.held for each in self.clients):
            return False
        if self.kind is SHARED:
            return True
        if self.owner(position) is not client:
            return False
        same = set(self.of_same_key(position))
        return not any(same & set(other.held) for other in self.clients if other is not client)

    def of_same_key(self, position: Position) -> list[Position]:
        """What is left of the key at ``position``."""
        key = KEYS[position.entry_id % len(KEYS)]
        return [each for each in self.left if KEYS[each.entry_id % len(KEYS)] == key]

    def owner(self, position: Position) -> Client:
        return self.owners[KEYS[position.entry_id % len(KEYS)]]


class Owner:
    """The topic, where a subscription is deleted and nothing else becomes of it."""

    failover_delay_s = 0.0

    def subscription_left(self, subscription: Subscription) -> None:
        """It may outlive its consumers here."""

    async def delete_subscription(
        self, subscription: Subscription, consumer: Consumer | None = None, *, force: bool = False
    ) -> None:
        subscription.give_up(consumer, force=force)


class Rig:
    """A subscription and its model, told the same."""

    def __init__(self, kind: SubscriptionType, loop: SimulatedLoop) -> None:
        self.kind = kind
        self.loop = loop
        self.joined = 0
        self.begin()

    def begin(self) -> None:
        """A subscription that no client knows yet."""
        self.log = log = BatchLog(KEYS, *LEDGERS)
        log.entries_max = READ_ENTRIES_MAX
        self.model = Model(self.kind)
        self.subscription = Subscription(
            Owner(), TOPIC, -1, cast(ManagedLedger, log), cursor_over(log.chain), SimulatedClock()
        )

    def do(self, call: Callable[..., object], *arguments: object) -> None:
        """Call it where timers can be set."""

        async def called() -> None:
            call(*arguments)

        self.loop.run_until_complete(called())

    def step(self, step: str, number: int) -> None:
        """Do one thing at random, if it can be done."""
        if step != "seek":  # which comes while entries are being read
            self.come_to_rest()
        clients = self.model.clients
        of_all: dict[str, Callable[[], None]] = {
            "join": lambda: self.join(number % 3),
            "seek": lambda: self.seek(ALL[number % len(ALL)]),
            "skip": lambda: self.skip(number % 4),
            "expire": lambda: self.expire([each for each in ALL if each[1] % 7 == number % 7]),
            "throttle": lambda: self.throttle(number % 3 * RATE_MIN),
            "cache": self.turn_cache_on_or_off,
            "evict": self.evict,
        }
        if step in of_all:
            of_all[step]()
        elif clients:
            self.step_of(clients[number % len(clients)], step, number)
        if not self.log.is_cold:
            self.come_to_rest()

    def step_of(self, client: Client, step: str, number: int) -> None:
        """Do one thing that a client does."""
        if step == "leave":
            self.leave(client)
        elif step == "flow":
            self.flow(client, number % 12 + 1)
        elif step == "nack all":
            self.nack(client, None)
        elif step == "unsubscribe":
            self.unsubscribe(client, force=bool(number % 2))
        else:
            self.acknowledge_or_give_back(step, client, number)

    def come_to_rest(self) -> None:
        """Let come what comes, and look at all of it."""
        if self.is_slow:
            self.let_time_pass()
        elif self.log.is_cold:
            self.loop.run_until_complete(self.log.settled())
        self.model.look()

    def turn_cache_on_or_off(self) -> None:
        self.log.is_cold = not self.log.is_cold

    def evict(self) -> None:
        """Others need the memory for what they fetch."""
        dispatcher = self.subscription.membership.dispatcher
        if dispatcher is not None:
            dispatcher.reader.read_ahead.evict()

    def acknowledge_or_give_back(self, step: str, client: Client, number: int) -> None:
        known = sorted(client.held) if self.kind.tracks_entries else ALL
        if not known:
            return
        position = known[number % len(known)]
        if step == "nack":
            self.nack(client, known[number % len(known) :][:3])
        elif step == "ack run":
            self.acknowledge(client, known[number % len(known) :][:10])
        elif step == "ack part":
            self.acknowledge_part(client, position, number % (1 << messages_in(position)))
        elif step == "ack upto" and not self.kind.tracks_entries:
            # In the midst of a batch clients name the entry before, which may be -1.
            ledger_id, entry_id = position
            self.acknowledge_upto(client, Position(ledger_id, entry_id - number // len(ALL) % 2))
        else:
            self.acknowledge(client, [position])

    def join(self, permits: int) -> None:
        if len(self.model.clients) >= (1 if self.kind is EXCLUSIVE else CONSUMERS_MAX):
            return
        client = Client(f"c{self.joined}", permits)
        self.joined += 1
        self.loop.run_until_complete(self.subscription.admit(self.kind))
        client.consumer.permits = 0
        self.model.clients.append(client)
        self.model.changed()
        self.do(self.subscription.connected, client.consumer)
        self.do(self.subscription.flow, client.consumer, permits)

    def leave(self, client: Client) -> None:
        self.model.clients.remove(client)
        self.model.changed()
        self.do(self.subscription.membership.remove, client.consumer)

    def unsubscribe(self, client: Client, *, force: bool) -> None:
        """Only a consumer that is alone may without force; every other one is told so, once."""
        others = [each for each in self.model.clients if each is not client]
        asked = self.subscription.unsubscribe(client.consumer, force=force)
        if others and not force:
            with pytest.raises(InvalidRequest):
                self.loop.run_until_complete(asked)
            return
        self.loop.run_until_complete(asked)
        assert [each.told.closures for each in others] == [1] * len(others)
        assert client.told.closures == 0
        assert self.subscription.consumers == []
        self.let_time_pass()
        for each in (client, *others):
            assert list(each.received()) == [], "sent of a subscription that is gone"
            assert each.consumer.unacknowledged >= 0
        self.begin()

    def flow(self, client: Client, permits: int) -> None:
        client.permits += permits
        self.do(self.subscription.flow, client.consumer, permits)

    def nack(self, client: Client, positions: list[Position] | None) -> None:
        if self.kind.tracks_entries:
            for position in list(client.held) if positions is None else positions:
                client.held.pop(position, None)
        elif client is self.model.active:
            self.model.rewind()
        self.do(self.subscription.redeliver, client.consumer, positions)

    def acknowledge(self, client: Client, positions: list[Position]) -> None:
        for position in positions:
            self.model.acknowledge(position)
        ids = [(each.ledger_id, each.entry_id) for each in positions]
        self.do(self.subscription.acknowledger.entries, client.consumer, ids)

    def acknowledge_part(self, client: Client, position: Position, remaining: int) -> None:
        self.model.acknowledge(position, remaining)
        entry = (position.ledger_id, position.entry_id, (remaining,))
        self.do(self.subscription.acknowledger.single, client.consumer, [entry], None)

    def acknowledge_upto(self, client: Client, position: Position) -> None:
        for each in [each for each in self.model.left if each <= position]:
            self.model.acknowledge(each)
        self.do(self.subscription.acknowledger.upto, client.consumer, position, (), None)

    def seek(self, position: Position) -> None:
        self.model.seek(position)
        self.loop.run_until_complete(self.subscription.seek(position))

    def skip(self, count: int) -> None:
        for position in sorted(self.model.left)[:count]:
            self.model.acknowledge(position)
        if count:
            self.loop.run_until_complete(self.subscription.skipping.entries(count))

    def expire(self, positions: list[Position]) -> None:
        """Single entries, as where delayed ones between them are spared."""
        for ledger, _ in LEDGERS:
            entries = [each.entry_id for each in positions if each.ledger_id == ledger]
            for entry_id in entries:
                self.model.acknowledge(Position(ledger, entry_id))
            self.do(self.subscription.skipping.expire_entries, ledger, entries)
            self.model.look_at_sent()

    def throttle(self, messages: int) -> None:
        """So many messages a second from now on, 0: any number; what was held back comes."""
        limit = DispatchLimit(messages=messages)
        gates = [RateLimiter(limit, SimulatedClock(self.loop))] if messages else []
        self.do(self.subscription.membership.pass_through, gates, COUNT_ALL)
        self.let_time_pass()

    def let_time_pass(self) -> None:
        """All that is slowed down has come after this."""
        total = sum(messages_in(each) for each in ALL)
        self.loop.run_until_complete(asyncio.sleep(2 * total / RATE_MIN + 1))

    @property
    def is_slow(self) -> bool:
        """Whether a dispatch rate holds."""
        return bool(self.subscription.membership._limiters)

    def finish(self) -> None:
        """Everybody takes and acknowledges all there is: then nothing may be left."""
        self.come_to_rest()
        self.throttle(0)
        self.join(0)
        for _ in range(len(ALL)):
            for client in list(self.model.clients):
                self.flow(client, 200)
                self.come_to_rest()
                held = client.held if self.kind.tracks_entries else self.model.left
                self.acknowledge(client, sorted(held))
                self.come_to_rest()
            if not self.model.left:
                break
        assert not self.model.left
        assert self.subscription.cursor.mark_delete == ALL[-1]
        assert all(client.consumer.unacknowledged == 0 for client in self.model.clients)


@contextmanager
def rig_of(kind: SubscriptionType) -> Generator[Rig]:
    """A subscription without consumers, on a loop of its own."""
    loop = SimulatedLoop()

    async def made() -> Rig:
        return Rig(kind, loop)

    try:
        yield loop.run_until_complete(made())
    finally:
        loop.close()


STEPS = [
    *("join", "leave", "flow", "flow", "flow", "ack", "ack run", "ack part", "ack upto"),
    *("nack", "nack all", "seek", "skip", "expire", "throttle", "unsubscribe"),
    *("cache", "evict"),
]
# Before them two consumers come and take some: steps that find no consumer prove nothing.
BEGINNING = [("join", 2), ("flow", 10), ("join", 1), ("flow", 11)]
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 999)), min_size=5, max_size=40)


@pytest.mark.parametrize("kind", SubscriptionType)
@settings(max_examples=60)
@given(taken=steps)
def test_dispatching_keeps_its_promises_whatever_consumers_do(
    kind: SubscriptionType, taken: list[tuple[str, int]]
) -> None:
    with rig_of(kind) as rig:
        for step, number in BEGINNING + taken:
            rig.step(step, number)
        rig.finish()
