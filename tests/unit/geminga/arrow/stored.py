"""What a topic has in tests of tables: entries that the broker in memory delivers."""

from __future__ import annotations

from tests.unit.geminga.fake_broker import LEDGER, FakeBroker, Session, metadata

from geminga import Client
from geminga.arrow import read_table
from geminga_protocol.pulsar import answers
from geminga_protocol.pulsar.api_pb2 import BaseCommand, SingleMessageMetadata
from geminga_protocol.pulsar.messages.integers import signed
from geminga_protocol.pulsar.messages.payload import (
    encode_batch,
    encode_numbered_batch,
    encode_payload,
)


def last_is(broker: FakeBroker, entry_id: int) -> None:
    """From now on this is the last entry of the topic."""
    broker.on(
        BaseCommand.GET_LAST_MESSAGE_ID,
        lambda session, command, _: session.write(
            answers.encode_last_message_id(
                command.getLastMessageId.request_id, answers.message_id(LEDGER, entry_id)
            )
        ),
    )


def batch_of(*messages: tuple[SingleMessageMetadata, bytes]) -> bytes:
    whole = metadata()
    whole.num_messages_in_batch = len(messages)
    return encode_payload(whole, encode_batch(messages))


def plain_batch(*bodies: bytes) -> bytes:
    """Of messages that say no more than their sequence ids, as most do."""
    whole = metadata()
    whole.num_messages_in_batch = len(bodies)
    numbers = list(range(len(bodies)))
    return encode_payload(whole, encode_numbered_batch(bodies, [b""] * len(bodies), numbers))


def said(**fields: object) -> SingleMessageMetadata:
    return SingleMessageMetadata(payload_size=0, **fields)  # type: ignore[arg-type]


def deliver(broker: FakeBroker, *payloads: bytes) -> None:
    """All entries that the topic has: each reader gets those behind its start."""
    last_is(broker, len(payloads) - 1)
    starts: dict[int, tuple[int, int]] = {}

    def subscribe(session: Session, command: BaseCommand, _: bytes) -> None:
        start = command.subscribe.start_message_id
        starts[command.subscribe.consumer_id] = signed(start.ledgerId), signed(start.entryId)
        session.write(answers.encode_success(command.subscribe.request_id))

    def send(_: Session, command: BaseCommand, __: bytes) -> None:
        # At once, however many permits there are: a reader asks for more in the midst of it.
        start = starts.pop(command.flow.consumer_id, (LEDGER, len(payloads)))
        for entry_id, payload in enumerate(payloads):
            if (LEDGER, entry_id) > start:
                broker.deliver(entry_id, payload=payload, consumer_id=command.flow.consumer_id)

    broker.on(BaseCommand.SUBSCRIBE, subscribe)
    broker.on(BaseCommand.FLOW, send)


async def rows_of(client: Client, **options: object) -> list[dict[str, object]]:
    table = await read_table(client, "orders", **options)  # type: ignore[arg-type]
    return table.to_pylist()  # type: ignore[no-any-return]
