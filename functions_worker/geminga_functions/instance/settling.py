"""What becomes of a message that the user's code has seen: its results are sent, and it is
acknowledged once all that came of it is stored; or it is delivered again.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import geminga
from geminga_functions.errors import InstanceFailed
from geminga_functions.instance.outputs import Outputs, sequence_id_of
from geminga_functions.instance.status import Counters, trace_of
from geminga_functions.state.table import Result
from geminga_protocol.functions.functions_pb2 import (
    ATLEAST_ONCE,
    ATMOST_ONCE,
    EFFECTIVELY_ONCE,
    MANUAL,
    FunctionDetails,
    ProcessingGuarantees,
)
from geminga_protocol.pulsar.messages.integers import encode_varint
from geminga_runtime.clock import Clock

log = logging.getLogger(__name__)

# Characters of up to four bytes each, in a message of 64 KiB.
TRACE_CHARACTERS_MAX = 12 * 1024
# What is acknowledged ahead is processed within about so long: a round trip to the broker is little
# beside it.
AHEAD_S = 0.1
# The property of a result that names the message it came of; the names are upstream's.
INPUT_TOPIC = "__pfn_input_topic__"
INPUT_MESSAGE_ID = "__pfn_input_msg_id__"

# Fields of MessageIdData (PulsarApi.proto), as numbers follow them.
BATCH_INDEX, BATCH_SIZE = b"\x20", b"\x30"


def guarantee_of(details: FunctionDetails) -> ProcessingGuarantees.ValueType:
    """What is guaranteed. Before there was MANUAL, functions that acknowledge by themselves were
    created with ``autoAck`` false, which upstream still heeds with ATLEAST_ONCE."""
    said = details.processingGuarantees
    is_automatic = details.autoAck  # pyright: ignore[reportDeprecated]  # see above
    return MANUAL if said == ATLEAST_ONCE and not is_automatic else said


def users_failure(error: BaseException) -> InstanceFailed:
    """What ends an instance where the user's code raised ``error``."""
    return InstanceFailed(trace_of(error, TRACE_CHARACTERS_MAX), is_user_error=True)


@dataclass(slots=True)
class Outcome:
    """What came of one message, of about ``size`` bytes. ``results`` are serialized, unless the
    output's schema makes keys of them too."""

    message: geminga.Message[Any]
    results: list[Any] = field(default_factory=list[Any])
    published: Sequence[Future[geminga.MessageId]] = ()
    error: BaseException | None = None
    size: int = 0


class Settler:
    """Settles the messages of one instance."""

    def __init__(
        self,
        outputs: Outputs,
        counters: Counters,
        guarantee: ProcessingGuarantees.ValueType,
        fail: Callable[[Exception], None],
    ) -> None:
        self._outputs = outputs
        self._counters = counters
        self._guarantee = guarantee
        self._is_acknowledged_here = guarantee not in (ATMOST_ONCE, MANUAL)
        self._fail = fail if guarantee == EFFECTIVELY_ONCE else None
        self._loop = asyncio.get_running_loop()

    async def settle(self, consumer: geminga.Consumer[Any], outcomes: Sequence[Outcome]) -> None:
        """Send the results of messages, and acknowledge each once all of its is stored.

        Raises ``InstanceFailed`` for what ends the instance; what came before it is settled.
        """
        producer: geminga.Producer[Any] | None = None
        for outcome in outcomes:
            if outcome.error is not None:
                self._refuse(consumer, outcome.message, outcome.error)
                continue
            results, published = outcome.results, outcome.published
            done = Pending(
                outcome.message,
                consumer,
                self._counters,
                len(results) + len(published),
                self._is_acknowledged_here,
                self._fail,
            )
            for future in published:
                future.add_done_callback(partial(self._published, done))
            if not results and not published:
                done.end()
            elif self._guarantee == EFFECTIVELY_ONCE:
                for result in results:
                    await self._send_numbered(done, result)
            else:
                producer = producer or await self._outputs.of_results()
                for result in results:
                    await producer.ready()
                    self._send(producer, done, result, {})

    def _refuse(
        self,
        consumer: geminga.Consumer[Any],
        message: geminga.Message[Any],
        error: BaseException,
    ) -> None:
        if self._guarantee == EFFECTIVELY_ONCE or not isinstance(error, Exception):
            raise users_failure(error)
        if self._guarantee != ATMOST_ONCE:
            consumer.nack(message)

    async def _send_numbered(self, done: Pending, result: Any) -> None:  # noqa: ANN401 - the user's
        message = done.message
        numbered = await self._outputs.of_partition(message.topic)
        sequence_id = sequence_id_of(message.id)
        if sequence_id <= numbered.stored:
            done.stored(None, None)
            return
        await numbered.producer.ready()
        self._send(numbered.producer, done, result, {"sequence_id": sequence_id})

    def _send(
        self,
        producer: geminga.Producer[Any],
        done: Pending,
        result: Any,  # noqa: ANN401 - the user's
        options: geminga.MessageOptions,
    ) -> None:
        message = done.message
        options["properties"] = properties_of_result(message)
        try:
            producer.send_nowait(result, done.stored, **options)
        except (ValueError, TypeError, geminga.MessageTooLarge) as error:
            if self._guarantee == EFFECTIVELY_ONCE:
                # Without this result no later one may be stored.
                raise InstanceFailed(str(error), is_user_error=True) from error
            done.stored(None, error)

    def _published(self, done: Pending, future: Future[geminga.MessageId]) -> None:
        if not future.cancelled():
            self._loop.call_soon_threadsafe(done.published, future.exception())


class Ahead:
    """Acknowledges before the code is called (ATMOST_ONCE).

    Messages that were acknowledged and not processed are lost when the instance ends. So there are
    ``messages_max`` at a time, of ``limit`` at most: what is processed in about ``AHEAD_S``.
    """

    def __init__(self, limit: int, counters: Counters, clock: Clock) -> None:
        self.messages_max = 1
        self._limit = limit
        self._counters = counters
        self._clock = clock
        self._began_s = 0.0

    async def acknowledge(
        self, consumer: geminga.Consumer[Any], messages: Sequence[geminga.Message[Any]]
    ) -> bool:
        """Whether the broker has noted it. Where that is not known, messages come again or are
        lost; were they processed now, they could be so twice."""
        try:
            await consumer.ack_confirmed(*messages)
        except (geminga.ConnectionLost, geminga.RequestTimedOut, geminga.BrokerRefused) as error:
            self._counters.system_exception(error)
            return False
        self._began_s = self._clock.monotonic()
        return True

    def adapt(self) -> None:
        """What was acknowledged last is processed."""
        is_quick = self._clock.monotonic() - self._began_s < AHEAD_S / 2
        wanted = self.messages_max * 2 if is_quick else self.messages_max // 2
        self.messages_max = max(1, min(wanted, self._limit))


class Pending:
    """A message with ``left`` results that are not stored yet; it is acknowledged after the last.

    One that could not be stored has the message come again; but where ``fail`` is told, no later
    message may overtake it: its instance begins anew.
    """

    __slots__ = (
        "_consumer",
        "_counters",
        "_error",
        "_fail",
        "_is_acknowledged_here",
        "_left",
        "message",
    )

    def __init__(
        self,
        message: geminga.Message[Any],
        consumer: geminga.Consumer[Any],
        counters: Counters,
        left: int,
        is_acknowledged_here: bool,  # noqa: FBT001 - made for each message
        fail: Callable[[Exception], None] | None,
    ) -> None:
        self.message = message
        self._consumer = consumer
        self._counters = counters
        self._left = left
        self._error: BaseException | None = None
        self._is_acknowledged_here = is_acknowledged_here
        self._fail = fail

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
            if self._error is not None and self._fail is not None:
                self._fail(InstanceFailed(f"a result could not be stored: {self._error}"))
            elif self._error is not None:
                self._consumer.nack(self.message)
            elif self._is_acknowledged_here:
                self._consumer.ack(self.message)
        except geminga.ClientError:
            log.info("message not acknowledged: the consumer has ended", exc_info=True)


def id_text(message: geminga.Message[Any]) -> str:
    """The id of a message as properties have it: Base64, as upstream's."""
    if message.chunks:
        encoded = message.id.to_bytes()
    else:
        encoded = _encoded_entry(*message.position, message.partition)
        if message.batch_acks is not None:
            index, size = encode_varint(message.batch_index), encode_varint(message.batch_acks.size)
            encoded = b"".join((encoded, BATCH_INDEX, index, BATCH_SIZE, size))
    return base64.urlsafe_b64encode(encoded).decode()


# What a batch has in common is encoded once: 0.9 us for an id instead of 2.7.
@lru_cache(maxsize=1024)
def _encoded_entry(ledger_id: int, entry_id: int, partition: int) -> bytes:
    return geminga.MessageId(ledger_id, entry_id, partition=partition).to_bytes()


def properties_of_result(message: geminga.Message[Any]) -> dict[str, str]:
    """What a result says of the message that it came of."""
    return {INPUT_TOPIC: message.topic, INPUT_MESSAGE_ID: id_text(message)}


def result_of(message: geminga.Message[Any], payload: Any) -> Result:  # noqa: ANN401 - checked
    """A result as it is committed, before it is sent. Raises ``InstanceFailed``."""
    if not isinstance(payload, bytes):
        raise InstanceFailed(
            "EFFECTIVELY_ONCE with state needs an output schema without pairs of key and value",
            is_user_error=True,
        )
    return Result(sequence_id_of(message.id), properties_of_result(message), payload)
