"""``geminga consume`` and ``geminga read``: show messages as they arrive."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from geminga import EARLIEST, LATEST, AutoConsumeSchema, Client, Message, MessageId
from geminga_cli.admin.errors import InvalidUse
from geminga_cli.display.messages import message_json, message_lines
from geminga_cli.messaging.files import key_at
from geminga_cli.messaging.run import run_with_client
from geminga_cli.output import print_now
from geminga_cli.throughput.pace import Pace
from geminga_runtime.clock import Clock, SystemClock

Show = Callable[[str], None]
POSITIONS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class OnePrivateKey:
    """One private key, whatever the name of a message's key is (``geminga.PrivateKeyReader``)."""

    pem: bytes

    def private_key(self, _name: str, _metadata: Mapping[str, str], /) -> bytes:
        """The key."""
        return self.pem


async def consume(client: Client, given: argparse.Namespace, clock: Clock, show: Show) -> None:
    """Show the messages of a subscription, and acknowledge each after it was shown.

    A message that could not be written stays unacknowledged, and is delivered again. Raises
    ``InvalidUse``, ``ClientError``.
    """
    # The position counts for a new subscription: one that exists goes on where it is.
    options = _options(given) | {
        "type": given.subscription_type,
        "initial_position": given.subscription_position,
        "replicate_subscription_state": given.replicated,
    }
    topics: Any = given.topic
    if given.regex:
        try:
            topics = re.compile(given.topic)
        except re.error as error:
            raise InvalidUse(f"{given.topic!r} is no regular expression: {error}") from None
    try:
        opened = await client.consumer(topics, given.subscription_name, **options)
    except ValueError as error:  # of the client's arguments, which are the user's options
        raise InvalidUse(str(error)) from None
    # Closing the consumer sends the acknowledgements that are still grouped.
    async with opened as consumer:
        if given.start_timestamp:
            # By publish time, for the whole subscription: its other consumers begin anew there too.
            # The client drops what it fetched before the seek, so nothing older is shown.
            await consumer.seek(given.start_timestamp)
        await _show_all(given, consumer.receive, consumer.ack, clock, show)


async def read(client: Client, given: argparse.Namespace, clock: Clock, show: Show) -> None:
    """Show the messages of a topic. Raises ``InvalidUse``, ``ClientError``."""
    # ``earliest``, ``latest``, or the ledger and the entry of a message.
    start = POSITIONS.get(given.start_message_id) or MessageId(*given.start_message_id)
    async with client.reader(
        given.topic,
        start,
        start_inclusive=given.start_message_id_inclusive,
        **_options(given),
    ) as reader:
        await _show_all(given, reader.read, lambda _: None, clock, show)


async def _show_all(
    given: argparse.Namespace,
    receive: Callable[[], Awaitable[Message[Any]]],
    done: Callable[[Message[Any]], None],
    clock: Clock,
    show: Show,
) -> None:
    """Show ``given.num_messages`` messages, or all that arrive if that is 0."""
    shown = 0
    # Messages arrive ahead of their turn, up to the receiver queue: brokers are slowed down by
    # permits.
    pace = Pace(given.rate, clock.monotonic())
    while not given.num_messages or shown < given.num_messages:
        await asyncio.sleep(pace.wait_s(clock.monotonic()))
        message = await receive()
        # It stays unacknowledged, because it is not shown: the broker delivers it again to the next
        # consumer of the subscription.
        if given.end_timestamp and message.publish_time_ms > given.end_timestamp:
            return
        with_value = given.schema_type == "auto_consume"
        lines: Iterable[str] = ()
        # With --hide-content a line of JSON still has the metadata; for people there is nothing
        # left to print.
        if given.json:
            with_content = not given.hide_content
            lines = [message_json(message, with_value=with_value, with_content=with_content)]
        elif not given.hide_content:
            lines = message_lines(
                message, with_value=with_value, in_hex=given.hex, with_metadata=given.print_metadata
            )
        # ``show`` flushes: where the reader of our output has gone, it raises before the message is
        # acknowledged.
        for line in lines:
            show(line)
        done(message)
        shown += 1
        pace.add()


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """The client's options for a consumer or a reader."""
    # What is not given is left to the client's defaults.
    options: dict[str, Any] = {}
    if given.queue_size is not None:
        options["receiver_queue_size"] = given.queue_size
    if given.max_chunked_msg is not None:
        options["chunked_messages_max"] = given.max_chunked_msg
    if given.encryption_key_value is not None:
        options["decryption"] = OnePrivateKey(key_at(given.encryption_key_value))
    if given.schema_type == "auto_consume":
        options["schema"] = AutoConsumeSchema()
    return options


def run(
    given: argparse.Namespace,
    how: Callable[[Client, argparse.Namespace, Clock, Show], Awaitable[None]],
) -> int:
    """Run ``consume`` or ``read``; returns the exit code."""
    return run_with_client(given, lambda client: how(client, given, SystemClock(), print_now))
