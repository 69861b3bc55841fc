"""A broker that is killed recovers a million acknowledgements with holes between them: exactly, and
before a client notices.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence

import pytest
from tests.integration.conftest import StartStandalone
from tests.integration.raw_client import Ids, RawClient, send_frame

from geminga_protocol.pulsar import api_pb2 as api

TOPIC = "persistent://public/default/holes"
SUBSCRIPTION = "holes"
PRODUCER_ID = CONSUMER_ID = 1
# Of each three entries the first is left: what is acknowledged has a hole before every pair.
LEFT_EACH = 3
SENT_TOGETHER = 2_000
ACKNOWLEDGED_TOGETHER = 20_000
SUBSCRIBED_S_MAX = 1.0
# What else a machine does is not in the way so many times in a row.
ATTEMPTS_MAX = 4


def publish_all(client: RawClient, count: int) -> tuple[array[int], array[int]]:
    """Publish as many entries, some thousand on their way at once; their ledgers and entry ids."""
    client.create_producer(TOPIC, PRODUCER_ID)
    ledgers, entries = array("q"), array("q")
    for first in range(0, count, SENT_TOGETHER):
        numbers = range(first, min(first + SENT_TOGETHER, count))
        client.write(b"".join(send_frame(PRODUCER_ID, number, b"") for number in numbers))
        for _ in numbers:
            receipt = client.expect(api.BaseCommand.SEND_RECEIPT).command.send_receipt
            ledgers.append(receipt.message_id.ledgerId)
            entries.append(receipt.message_id.entryId)
    return ledgers, entries


def acknowledge_all(client: RawClient, ids: Sequence[Ids]) -> None:
    """Acknowledge one by one; each is confirmed when this returns."""
    for first in range(0, len(ids), ACKNOWLEDGED_TOGETHER):
        client.acknowledge(
            CONSUMER_ID,
            [
                api.MessageIdData(ledgerId=ledger_id, entryId=entry_id)
                for ledger_id, entry_id in ids[first : first + ACKNOWLEDGED_TOGETHER]
            ],
        )


def delivered(client: RawClient, count: int) -> Iterator[Ids]:
    """The ids of the next messages."""
    client.flow(CONSUMER_ID, count)
    for _ in range(count):
        message_id = client.expect(api.BaseCommand.MESSAGE).command.message.message_id
        yield message_id.ledgerId, message_id.entryId


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("acknowledged", [1_000_000])
def test_a_million_acknowledgements_with_holes_outlive_a_kill(
    start_standalone: StartStandalone, acknowledged: int
) -> None:
    standalone = start_standalone()
    count = acknowledged * LEFT_EACH // (LEFT_EACH - 1)
    with RawClient(standalone.service_url) as client:
        client.connect()
        client.subscribe(TOPIC, SUBSCRIPTION, CONSUMER_ID)
        ids = list(zip(*publish_all(client, count), strict=True))
        settled = [each for number, each in enumerate(ids) if number % LEFT_EACH]
        assert len(settled) == acknowledged
        acknowledge_all(client, settled)
    tried_s: list[float] = []
    while not tried_s or tried_s[-1] >= SUBSCRIBED_S_MAX:
        assert len(tried_s) < ATTEMPTS_MAX, f"subscribed after {tried_s} s"
        standalone.wait_restarted("broker", standalone.kill_part("broker"))
        with RawClient(standalone.service_url) as client:
            client.connect()
            began_s = time.monotonic()
            client.subscribe(TOPIC, SUBSCRIPTION, CONSUMER_ID)
            tried_s.append(time.monotonic() - began_s)
            left = ids[::LEFT_EACH]
            assert list(delivered(client, len(left))) == left
