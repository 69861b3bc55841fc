"""The producer of another cluster's replicator: its entries are numbered by source positions.

A replicated message keeps the producer name and sequence id that it got in its own cluster; they
mean nothing here. Receipts and deduplication use its position in the source's log instead.

A refused entry must not be overtaken: the source takes the receipt of a later position as the
receipt of all positions before it. So the first refusal closes the producer, and the replicator
reconnects and sends that entry again.
"""

from __future__ import annotations

from collections.abc import Sequence

from geminga_broker.errors import BrokerError, NotAllowed, StorageUnavailable
from geminga_broker.managed_ledger.writing.append_request import AppendRequest, one_by_one
from geminga_broker.topics.producers.producer import Producer, Step
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.messages.payload import parse_metadata
from geminga_protocol.pulsar.messages.replication import source_position

# Upstream's words, its grammar included.
NO_POSITION = (
    "Message can not determine whether the message is duplicated due to the acquired messages "
    "props were are invalid"
)


class ReplicatorProducer(Producer):
    """A replicator's producer."""

    # Its sequence ids are those of many producers of the source.
    is_numbering = False
    # Whether entries carry their source positions, and receipts return them. Older sources send
    # none; their messages are not deduplicated.
    is_positioned = False

    def fail(self, request: AppendRequest, error: BrokerError) -> None:
        """Tell the replicator, and take no more from it until it reconnects."""
        super().fail(request, error)
        # Several entries of one run may be refused; the first one closes.
        if not self.is_closed:
            self.disconnect()
            self.on_closed(self)


def take_positions(following: Step, producer: Producer, requests: Sequence[AppendRequest]) -> None:
    """Replace the sequence ids of ``requests`` by source positions, and hand them to ``following``.

    Entries up to the first one without a position are handed on; that one is refused.
    """
    numbered: list[AppendRequest] = []
    # The position is one of the message's properties, so that the metadata of each entry is parsed
    # here. Clients' messages do not come this way.
    for payload, messages, publisher, _, _ in requests:
        try:
            position = source_position(parse_metadata(payload))
        except WireError:
            position = None
        # What is behind it must not be stored either: the source would take the receipt of a later
        # position for that of this one.
        if position is None:
            break
        numbered.append((payload, messages, publisher, *position))
    # First, so that the refusal is answered behind the entries that were sent before it.
    _take(following, producer, numbered)
    if len(numbered) < len(requests) and not producer.is_closed:
        producer.fail(requests[len(numbered)], StorageUnavailable(NO_POSITION))


def _take(following: Step, producer: Producer, numbered: Sequence[AppendRequest]) -> None:
    if not numbered or producer.is_closed:
        return
    try:
        following(producer, numbered)
    except NotAllowed as error:
        # The one entry is the culprit. Its refusal closes the producer.
        if len(numbered) == 1:
            producer.fail(numbered[0], error)
            return
        # None of the run was taken. Take the entries one by one: the first that is not allowed
        # closes the producer, which ends the rest.
        for each in one_by_one(numbered):
            _take(following, producer, [each])
