"""What another cluster's replicator publishes: numbered by the positions of its own log.

Its messages have the names and numbers that their producers gave them there, which mean nothing
here. Receipts and deduplication go by source positions instead. What is refused must never be
overtaken: for the source, a later position covers all before it. So the first refusal ends the
producer, and the replicator begins again where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.errors import BrokerError, NotAllowed, StorageUnavailable
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, one_by_one
from geminga_broker.topics.part import Step
from geminga_broker.topics.producing.producers import Producer
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.payload import parse_metadata
from geminga_protocol.pulsar.replication import source_position

NO_POSITION = (
    "Message can not determine whether the message is duplicated due to the acquired messages "
    "props were are invalid"
)


class ReplicatorProducer(Producer):
    """A replicator's producer. ``is_positioned``: its entries tell their positions, and its
    receipts are to; an older source does not know of them, and nothing of it is deduplicated."""

    is_positioned = False

    @property
    def is_numbering(self) -> bool:
        """Sequence ids are those of many producers of the source."""
        return False

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """Tell the replicator, and take nothing more from it until it comes back."""
        super().fail(request, error)
        if not self.is_closed:
            self.disconnect()
            self.on_closed(self)


def take_positions(following: Step, producer: Producer, requests: Sequence[AppendRequest]) -> None:
    """A step: number ``requests`` by their source positions, which receipts then tell."""
    numbered: list[AppendRequest] = []
    for payload, messages, publisher, _, _ in requests:
        try:
            position = source_position(parse_metadata(payload))
        except WireError:
            position = None
        if position is None:
            break
        numbered.append((payload, messages, publisher, *position))
    _take(following, producer, numbered)
    if len(numbered) < len(requests) and not producer.is_closed:
        producer.fail(requests[len(numbered)], StorageUnavailable(NO_POSITION))


def _take(following: Step, producer: Producer, numbered: Sequence[AppendRequest]) -> None:
    if not numbered or producer.is_closed:
        return
    try:
        following(producer, numbered)
    except NotAllowed as error:
        if len(numbered) == 1:
            producer.fail(numbered[0], error)
            return
        # Up to the first that is not allowed, which ends the producer.
        for each in one_by_one(numbered):
            _take(following, producer, [each])
