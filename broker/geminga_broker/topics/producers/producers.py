"""The registry of one topic's producers: names, access modes, and fencing.

Access modes and their answers are Pulsar's (PIP-68). A producer replaces another of its name whose
client is gone; while that client lives, the newcomer is refused. Producers that wait for exclusive
access are let in first come, first served, each when the last connected producer has left.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from weakref import proxy

from geminga_broker.errors import BrokerError, ProducerBusy, ProducerFenced
from geminga_broker.topics.producers.producer import Producer, not_connected
from geminga_protocol.pulsar.enums import AccessMode

if TYPE_CHECKING:
    from geminga_broker.topics.producers.publish_path import PublishPath


# A producer is in one of these places, or in none:
#
#     add ──no rival────────────────────▶ by_name ──remove, replaced, fenced──▶ (gone)
#      └──WAIT_FOR_EXCLUSIVE, and        ▲
#         another is connected ─▶ waiting┘ promoted by ``remove``, when by_name became empty
#
# Nothing here waits, except ``ask_namesake``: each change leaves the tables consistent.
class Producers:
    """The producers of ``topic``. None waits for exclusive access unless one is connected."""

    __slots__ = ("_exclusive", "_owner", "_topic", "by_name", "waiting")

    def __init__(self, topic: str, owner: PublishPath) -> None:
        self._topic = topic
        # Weak: the topic owns this registry, and a closed topic shall be freed at once.
        self._owner: PublishPath = proxy(owner)
        # The connected producers. Callers that remove some of them iterate over a copy.
        self.by_name: dict[str, Producer] = {}
        # The connected producer with any access mode but Shared: then it is the only one. It is
        # always in ``by_name`` as well.
        self._exclusive: Producer | None = None
        # Producers that wait for exclusive access, in the order of arrival. Keyed by the producer,
        # not by its name: several clients may wait under one name.
        self.waiting: dict[Producer, None] = {}

    # Connecting

    async def ask_namesake(self, producer: Producer) -> None:
        """Ping the client of a connected producer with the same name, and note if it is gone."""
        # Only if the answer matters: a ping takes a round trip, or a timeout. A producer that
        # fences the others does not ask. A producer that crashed keeps its name until its
        # connection ends, which without this ping takes until two keep-alive intervals have passed.
        present = self.by_name.get(producer.name)
        if (
            present is not None
            and producer.access_mode is not AccessMode.EXCLUSIVE_WITH_FENCING
            and not producer.replaces(present)
        ):
            # A note, not a removal: while the ping was awaited ``present`` may have left, or
            # another producer of the name may have come. ``add`` looks again.
            present.is_client_gone = not await present.session.is_alive()

    def add(self, producer: Producer) -> None:
        """Let ``producer`` in, or let it wait. Raises ``ProducerBusy`` or ``ProducerFenced``."""
        # No await in this method. Its checks hold until the producer is in.
        holder = self._exclusive
        # The exclusive producer that reconnects is not its own rival.
        is_own = holder is not None and holder.name == producer.name and producer.replaces(holder)
        if not is_own:
            if producer.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE and self.by_name:
                # The client is answered at once that its producer is not ready yet, and a second
                # time when it is (``on_settled``).
                producer.is_waiting = True
                self.waiting[producer] = None
                producer.disconnect = partial(self.remove, producer)
                return
            # May have closed all others, if this one fences them. Then ``present`` below is None.
            self._check_access(producer)
        # Close the earlier connection of the same producer. Its session is told unless the client
        # opened the same id again, which by itself ends the earlier producer there.
        present = self.by_name.get(producer.name)
        if present is not None:
            if not producer.replaces(present):
                raise ProducerBusy(
                    f"Producer with name '{producer.name}' is already connected to topic "
                    f"'{self._topic}'"
                )
            # Before the new one is let in, as ``_take_out`` removes by name.
            self._take_out(present)
            # CLOSE_PRODUCER for an id that the client has opened again would end the new producer.
            is_same_session = present.session is producer.session
            if not is_same_session or present.producer_id != producer.producer_id:
                present.on_closed(present)
        self._let_in(producer)
        producer.disconnect = partial(self.remove, producer)

    def _check_access(self, producer: Producer) -> None:
        """Raise if another producer's access mode, or this one's, forbids both at once. Close the
        others for a producer that fences them."""
        holder = self._exclusive
        # A waiting producer counts as the exclusive one that is to come. Without that, shared
        # producers that come and go could keep it waiting for ever.
        is_taken = holder is not None or bool(self.waiting)
        if holder is None:
            reason = "Topic has producers that wait to be the exclusive one"
        else:
            reason = f"Topic has an existing exclusive producer: {holder.name}"
        match producer.access_mode:
            case AccessMode.SHARED:
                if is_taken:
                    raise ProducerBusy(reason)
            case AccessMode.EXCLUSIVE:
                if is_taken:
                    raise ProducerFenced(reason)
                if self.by_name:
                    raise ProducerFenced("Topic has existing shared producers")
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                # It takes the topic by force.
                self.remove_all(ProducerFenced("Fenced out"))
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                return  # no producer is connected, or it would wait

    def _let_in(self, producer: Producer) -> None:
        self.by_name[producer.name] = producer
        # No other producer is connected now.
        if producer.access_mode is not AccessMode.SHARED:
            self._exclusive = producer

    # Leaving

    def remove(self, producer: Producer) -> None:
        """Forget ``producer``. Its pending messages are stored, but it gets no more receipts."""
        # Also called for a producer that is gone already, as each of session and topic may end it.
        self._take_out(producer)
        if self.waiting and not self.by_name:
            # At most one: it has the topic alone, so that the others go on waiting.
            following = next(iter(self.waiting))
            del self.waiting[following]
            self._let_in(following)
            # Its client is told when the epoch of the topic is stored, which takes a while.
            self._owner.producer_promoted(following)

    def remove_all(self, refusal: BrokerError) -> None:
        """Close all producers; those that wait are refused for ``refusal``."""
        # The waiting ones first, so that none of them is promoted when the last other one goes; and
        # none is left when the first client is told.
        waiting, self.waiting = self.waiting, {}
        for producer in waiting:
            producer.is_closed = True
            producer.settle(refusal)
        for producer in list(self.by_name.values()):
            self._take_out(producer)
            producer.on_closed(producer)

    def _take_out(self, producer: Producer) -> None:
        # It may not have been let in yet. A producer that only waits is removed from ``waiting``
        # and from nothing else.
        self.waiting.pop(producer, None)
        # Both may refer to the topic: without them, the producer is freed at once.
        producer.disconnect = lambda: None
        # A session never calls it: it asks ``is_closed`` before it appends.
        producer.append_all = not_connected
        if not producer.is_closed:
            producer.is_closed = True
            producer.wake()
            # Its pending bytes no longer count for the back-pressure of the session.
            producer.session.confirmed(producer.bytes_in - producer.bytes_confirmed)
        # A producer of the same name may have replaced it already. In a second call only: the first
        # one comes before the new producer is let in.
        if self.by_name.get(producer.name) is producer:
            del self.by_name[producer.name]
            self._owner.producer_left(producer)
        if self._exclusive is producer:
            self._exclusive = None
