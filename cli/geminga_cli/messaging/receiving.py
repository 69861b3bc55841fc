"""What ``geminga consume`` and ``geminga read`` do: show messages as they come."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
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


class OnePrivateKey:
    """One private key for whatever name a message's key has (``geminga.PrivateKeyReader``)."""

    def __init__(self, pem: bytes) -> None:
        self._pem = pem

    def private_key(self, _name: str, _metadata: Mapping[str, str], /) -> bytes:
        """The key."""
        return self._pem


async def consume(client: Client, given: argparse.Namespace, clock: Clock, show: Show) -> None:
    """Show the messages of a subscription, and acknowledge each once it was shown.

    A message whose line could not be written stays unacknowledged. Raises ``InvalidUse``,
    ``ClientError``.
    """
    options = _options(given) | {
        "type": given.subscription_type,
        "initial_position": given.subscription_position,
        "replicate_subscription_state": given.replicated,
    }
    topics: Any = _pattern(given.topic) if given.regex else given.topic
    try:
        opened = await client.consumer(topics, given.subscription_name, **options)
    except ValueError as error:  # what the client says of its arguments, and these are the user's
        raise InvalidUse(str(error)) from None
    async with opened as consumer:
        if given.start_timestamp:
            await consumer.seek(given.start_timestamp)
        await _show_all(given, consumer.receive, consumer.ack, clock, show)


async def read(client: Client, given: argparse.Namespace, clock: Clock, show: Show) -> None:
    """Show the messages of a topic. Raises ``InvalidUse``, ``ClientError``."""
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
    """Show ``given.num_messages``, or for ever if that is 0."""
    shown = 0
    pace = Pace(given.rate, clock.monotonic())
    while not given.num_messages or shown < given.num_messages:
        await asyncio.sleep(pace.wait_s(clock.monotonic()))
        message = await receive()
        if given.end_timestamp and message.publish_time_ms > given.end_timestamp:
            return
        for line in _lines(given, message):
            show(line)
        done(message)
        shown += 1
        pace.add()


def _lines(given: argparse.Namespace, message: Message[Any]) -> Iterable[str]:
    with_value = given.schema_type == "auto_consume"
    if given.json:
        with_content = not given.hide_content
        return [message_json(message, with_value=with_value, with_content=with_content)]
    if given.hide_content:
        return ()
    return message_lines(
        message, with_value=with_value, in_hex=given.hex, with_metadata=given.print_metadata
    )


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """What the client is told for a consumer and for a reader."""
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


def _pattern(words: str) -> re.Pattern[str]:
    try:
        return re.compile(words)
    except re.error as error:
        raise InvalidUse(f"{words!r} is no regular expression: {error}") from None


def run(
    given: argparse.Namespace,
    how: Callable[[Client, argparse.Namespace, Clock, Show], Awaitable[None]],
) -> int:
    """Show what is ``given``, by ``consume`` or ``read``; returns the exit code."""
    return run_with_client(given, lambda client: how(client, given, SystemClock(), print_now))
