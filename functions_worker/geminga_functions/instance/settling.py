"""What becomes of a message that the user's code has seen: its results are sent, and it is
acknowledged once all that came of it is stored; or it is delivered again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import geminga
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.outputs import Outputs, sequence_id_of
from geminga_functions.instance.status import Counters, trace_of
from geminga_protocol.functions.functions_pb2 import (
    ATMOST_ONCE,
    EFFECTIVELY_ONCE,
    MANUAL,
    ProcessingGuarantees,
)

log = logging.getLogger(__name__)

# Characters of up to four bytes each, in a message of 64 KiB.
TRACE_CHARACTERS_MAX = 12 * 1024
# The property of a result that names the message it came of; the names are upstream's.
INPUT_TOPIC = "__pfn_input_topic__"
INPUT_MESSAGE_ID = "__pfn_input_msg_id__"


@dataclass(slots=True)
class Outcome:
    """What came of one message. ``results`` are serialized, unless the output has a schema."""

    message: geminga.Message[Any]
    results: list[Any] = field(default_factory=list[Any])
    published: Sequence[Future[geminga.MessageId]] = ()
    error: BaseException | None = None


class Settler:
    """Settles the messages of one instance."""

    def __init__(
        self, outputs: Outputs, counters: Counters, guarantee: ProcessingGuarantees.ValueType
    ) -> None:
        self._outputs = outputs
        self._counters = counters
        self._guarantee = guarantee
        self._loop = asyncio.get_running_loop()

    async def settle(self, consumer: geminga.Consumer[Any], outcome: Outcome) -> None:
        """Send the results of a message, and acknowledge it once all is stored."""
        error = outcome.error
        if error is not None and (
            self._guarantee == EFFECTIVELY_ONCE or not isinstance(error, Exception)
        ):
            trace = trace_of(error, TRACE_CHARACTERS_MAX)
            raise InstanceFailed(trace, is_user_error=True)
        if error is not None:
            if self._guarantee != ATMOST_ONCE:
                consumer.nack(outcome.message)
            return
        is_acknowledged_here = self._guarantee not in (ATMOST_ONCE, MANUAL)
        left = len(outcome.results) + len(outcome.published)
        done = Pending(
            outcome.message,
            consumer,
            self._counters,
            left,
            is_acknowledged_here=is_acknowledged_here,
        )
        for future in outcome.published:
            future.add_done_callback(partial(self._published, done))
        for result in outcome.results:
            await self._send(done, result)
        if not left:
            done.end()

    async def _send(self, done: Pending, result: Any) -> None:  # noqa: ANN401 - the user's
        message = done.message
        options: geminga.MessageOptions = {
            "properties": {INPUT_TOPIC: message.topic, INPUT_MESSAGE_ID: id_text(message)}
        }
        if self._guarantee == EFFECTIVELY_ONCE:
            numbered = await self._outputs.of_partition(message.topic)
            producer, sequence_id = numbered.producer, sequence_id_of(message.id)
            if sequence_id <= numbered.stored:
                done.stored(None, None)
                return
            options["sequence_id"] = sequence_id
        else:
            producer = await self._outputs.of_results()
        await producer.ready()
        try:
            producer.send_nowait(result, done.stored, **options)
        except (ValueError, TypeError, geminga.MessageTooLarge) as error:
            done.stored(None, error)

    def _published(self, done: Pending, future: Future[geminga.MessageId]) -> None:
        if not future.cancelled():
            self._loop.call_soon_threadsafe(done.published, future.exception())


class Pending:
    """A message with ``left`` results that are not stored yet; it is acknowledged after the last.

    One that could not be stored has the message come again.
    """

    __slots__ = ("_consumer", "_counters", "_error", "_is_acknowledged_here", "_left", "message")

    def __init__(
        self,
        message: geminga.Message[Any],
        consumer: geminga.Consumer[Any],
        counters: Counters,
        left: int,
        *,
        is_acknowledged_here: bool,
    ) -> None:
        self.message = message
        self._consumer = consumer
        self._counters = counters
        self._left = left
        self._error: BaseException | None = None
        self._is_acknowledged_here = is_acknowledged_here

    def stored(self, _: geminga.MessageId | None, error: Exception | None) -> None:
        """A result is stored, or is not for ``error``: the callback of its producer."""
        if error is None:
            self._counters.written += 1
        else:
            self._counters.system_exception(error)
        self.published(error)

    def published(self, error: BaseException | None) -> None:
        """One less is left."""
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self.end()

    def end(self) -> None:
        """Acknowledge the message, or have it delivered again."""
        try:
            if self._error is not None:
                self._consumer.nack(self.message)
            elif self._is_acknowledged_here:
                self._consumer.ack(self.message)
        except geminga.ClientError:
            log.info("message not acknowledged: the consumer has ended", exc_info=True)


def id_text(message: geminga.Message[Any]) -> str:
    """The id of a message as properties have it: Base64, as upstream's."""
    return base64.urlsafe_b64encode(message.id.to_bytes()).decode()
