"""Settles messages that the user's code has processed.

The results of a message are sent, and it is acknowledged once all of them are stored, with what the
code published meanwhile; where something is not stored, the message is negatively acknowledged and
delivered again.
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

# Characters of up to four bytes each: a ``Failed`` stays far below INSTANCE_MESSAGE_BYTES_MAX.
TRACE_CHARACTERS_MAX = 12 * 1024
# About how long the messages that are acknowledged early take to be processed. Long beside a round
# trip to the broker, so that waiting for its confirmation costs little; short enough that few
# messages are lost in a crash.
AHEAD_S = 0.1
# Properties of a result that name the message which it is made of; the names are upstream's.
INPUT_TOPIC = "__pfn_input_topic__"
INPUT_MESSAGE_ID = "__pfn_input_msg_id__"

# The tags of two integer fields of MessageIdData (PulsarApi.proto). Fields 4 and 6 with wire type 0
# (varint): the number times eight.
BATCH_INDEX, BATCH_SIZE = b"\x20", b"\x30"


def guarantee_of(details: FunctionDetails) -> ProcessingGuarantees.ValueType:
    """The processing guarantee of a function.

    Before there was MANUAL, functions that acknowledge their messages themselves were created with
    ``autoAck`` false; like upstream, this counts as MANUAL where the guarantee is ATLEAST_ONCE.
    """
    said = details.processingGuarantees
    is_automatic = details.autoAck  # pyright: ignore[reportDeprecated]  # see above
    return MANUAL if said == ATLEAST_ONCE and not is_automatic else said


def users_failure(error: BaseException) -> InstanceFailed:
    """The error that ends an instance whose code raised ``error``."""
    return InstanceFailed(trace_of(error, TRACE_CHARACTERS_MAX), is_user_error=True)


@dataclass(slots=True)
class Outcome:
    """What came of processing one message."""

    message: geminga.Message[Any]
    # Payloads; or objects, where the output's schema makes both keys and payloads of them.
    results: list[Any] = field(default_factory=list[Any])
    # What the code published by way of its context: the receipts that are still awaited.
    published: Sequence[Future[geminga.MessageId]] = ()
    # What the code raised, or what failed while its input or its results were converted.
    error: BaseException | None = None
    # About how many bytes the results and the changes of the state take.
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
        # ATMOST_ONCE acknowledges before processing, with MANUAL the user's code does it.
        self._is_acknowledged_here = guarantee not in (ATMOST_ONCE, MANUAL)
        # With EFFECTIVELY_ONCE a result that is not stored ends the instance.
        self._fail = fail if guarantee == EFFECTIVELY_ONCE else None
        self._loop = asyncio.get_running_loop()

    async def settle(self, consumer: geminga.Consumer[Any], outcomes: Sequence[Outcome]) -> None:
        """Send the results of messages, and acknowledge each message once they are stored.

        Returns when they are sent. Raises ``InstanceFailed`` for an outcome that ends the instance;
        the outcomes before it are settled.
        """
        # Looked up once for all outcomes, and only for the first one that has results: an instance
        # whose function returns nothing opens no producer.
        producer: geminga.Producer[Any] | None = None
        for outcome in outcomes:
            message, error = outcome.message, outcome.error
            if error is not None:
                # An error that is no Exception, such as SystemExit, asks for the end of the code.
                if self._guarantee == EFFECTIVELY_ONCE or not isinstance(error, Exception):
                    raise users_failure(error)
                # With ATMOST_ONCE the message is acknowledged already, and stays lost.
                if self._guarantee != ATMOST_ONCE:
                    consumer.nack(message)
                continue
            results, published = outcome.results, outcome.published
            # ``left`` is complete before the first callback is registered: a result that fails at
            # once cannot end the message while others are still to be sent.
            done = PendingMessage(
                message,
                consumer,
                self._counters,
                len(results) + len(published),
                self._is_acknowledged_here,
                self._fail,
            )
            for future in published:
                # The callback may come in the thread of the user's code.
                future.add_done_callback(partial(self._published, done))
            # Nothing is awaited, and no callback would end it.
            if not results and not published:
                done.end()
            elif self._guarantee == EFFECTIVELY_ONCE:
                # One result at most for each input, or two of them would have one sequence id:
                # ``Instance`` refuses generators, and plain functions return a single value.
                for result in results:
                    numbered = await self._outputs.of_partition(message.topic)
                    sequence_id = sequence_id_of(message.id)
                    if sequence_id <= numbered.stored:
                        # An earlier run, of this instance or another, had the result stored.
                        done.stored(None, None)
                        continue
                    # Back-pressure: it waits while half of the producer's window is taken. The pump
                    # of this input waits with it, and receives nothing more.
                    await numbered.producer.ready()
                    self._send(numbered.producer, done, result, {"sequence_id": sequence_id})
            else:
                producer = producer or await self._outputs.of_results()
                for result in results:
                    await producer.ready()
                    self._send(producer, done, result, {})

    def _send(
        self,
        producer: geminga.Producer[Any],
        done: PendingMessage,
        result: Any,  # noqa: ANN401 - the user's
        options: geminga.MessageOptions,
    ) -> None:
        # By them ``trigger`` finds the result, and users the input of a result.
        options["properties"] = properties_of_result(done.message)
        try:
            producer.send_nowait(result, done.stored, **options)
        except (ValueError, TypeError, geminga.MessageTooLarge) as error:
            if self._guarantee == EFFECTIVELY_ONCE:
                # Without this result no later one may be stored.
                raise InstanceFailed(str(error), is_user_error=True) from error
            # As if the broker had refused it: the message is delivered again.
            done.stored(None, error)

    def _published(self, done: PendingMessage, future: Future[geminga.MessageId]) -> None:
        # A future is cancelled only when the instance ends: whether the message is stored is not
        # known then, and its input is neither acknowledged nor refused.
        if not future.cancelled():
            # On the loop, as the callbacks of producers: so ``left`` is changed by one thread
            # alone.
            self._loop.call_soon_threadsafe(done.published, future.exception())


@dataclass(slots=True, eq=False)
class EarlyAcknowledger:
    """Acknowledges messages before the user's code is called (ATMOST_ONCE).

    Messages that are acknowledged and not yet processed are lost when the instance crashes. So at
    most ``messages_max`` are acknowledged at a time: it starts with one, and grows up to ``limit``
    as long as they are processed within about ``AHEAD_S``.
    """

    limit: int
    counters: Counters
    clock: Clock
    # Between 1 and ``limit``.
    messages_max: int = field(default=1, init=False)
    # When the messages that are being processed were acknowledged, by the monotonic clock.
    _began_s: float = field(default=0.0, init=False)

    async def acknowledge(
        self, consumer: geminga.Consumer[Any], messages: Sequence[geminga.Message[Any]]
    ) -> bool:
        """Acknowledge ``messages``; returns whether the broker has confirmed it.

        Without a confirmation the messages must not be processed: the broker may deliver them
        again, and they would be processed twice. If it did note the acknowledgement, they are lost.
        """
        try:
            # Confirmed, and not only sent: if an acknowledgement got lost on its way, the messages
            # would be delivered again after they were processed.
            await consumer.ack_confirmed(*messages)
        except (geminga.ConnectionLost, geminga.RequestTimedOut, geminga.BrokerRefused) as error:
            self.counters.system_exception(error)
            return False
        self._began_s = self.clock.monotonic()
        return True

    def adapt(self) -> None:
        """Set how many messages are acknowledged next, by how long the last ones took."""
        # Twice as many messages would still take less than AHEAD_S.
        is_quick = self.clock.monotonic() - self._began_s < AHEAD_S / 2
        wanted = self.messages_max * 2 if is_quick else self.messages_max // 2
        self.messages_max = max(1, min(wanted, self.limit))


@dataclass(slots=True, eq=False)
class PendingMessage:
    """A message with ``left`` results and publishes that are not stored yet.

    It is acknowledged once the last of them is stored. If one of them is not stored, the message is
    negatively acknowledged and delivered again; but where ``fail`` is given, ``fail`` is called and
    ends the instance, since no later message may overtake this one.

    HOT: there is one for each message.
    """

    message: geminga.Message[Any]
    consumer: geminga.Consumer[Any]
    counters: Counters
    # Set once, to the number of callbacks that will come; each takes one away, on the loop. It gets
    # to zero once, so ``end`` is called once.
    left: int
    is_acknowledged_here: bool
    fail: Callable[[Exception], None] | None
    # The first error: a later result that is stored must not hide it.
    error: BaseException | None = None

    def stored(self, _: geminga.MessageId | None, error: Exception | None) -> None:
        """Note that a result is stored, or that it is not and why: a producer's callback."""
        if error is None:
            self.counters.written += 1
        else:
            self.counters.system_exception(error)
        self.published(error)

    def published(self, error: BaseException | None) -> None:
        """One less is left."""
        self.error = self.error or error
        self.left -= 1
        if self.left == 0:
            self.end()

    def end(self) -> None:
        """Acknowledge the message, or let the broker deliver it again."""
        try:
            if self.error is not None and self.fail is not None:
                self.fail(InstanceFailed(f"a result could not be stored: {self.error}"))
            elif self.error is not None:
                self.consumer.nack(self.message)
            elif self.is_acknowledged_here:
                self.consumer.ack(self.message)
        except geminga.ClientError:
            # The broker delivers the message again: at least once is kept.
            log.info("message not acknowledged: the consumer has ended", exc_info=True)


def id_text(message: geminga.Message[Any]) -> str:
    """The id of a message as a property: a MessageIdData in URL-safe Base64, as upstream's."""
    if message.chunks:
        # The id of a chunked message also names its first chunk, which is in no cached part.
        encoded = message.id.to_bytes()
    else:
        # The fields of the batch are appended by hand to the encoded entry, which is cached.
        encoded = _encoded_entry(*message.position, message.partition)
        if message.batch_acks is not None:
            index, size = encode_varint(message.batch_index), encode_varint(message.batch_acks.size)
            encoded = b"".join((encoded, BATCH_INDEX, index, BATCH_SIZE, size))
    return base64.urlsafe_b64encode(encoded).decode()


# The part of an id that all messages of a batch share is encoded once: 0.9 us instead of 2.7.
@lru_cache(maxsize=1024)
def _encoded_entry(ledger_id: int, entry_id: int, partition: int) -> bytes:
    return geminga.MessageId(ledger_id, entry_id, partition=partition).to_bytes()


def properties_of_result(message: geminga.Message[Any]) -> dict[str, str]:
    """The properties of a result, which name the message that it is made of."""
    return {INPUT_TOPIC: message.topic, INPUT_MESSAGE_ID: id_text(message)}


def result_of(message: geminga.Message[Any], payload: Any) -> Result:  # noqa: ANN401 - checked
    """A result as a commit holds it, before it is sent. Raises ``InstanceFailed``."""
    if not isinstance(payload, bytes):
        raise InstanceFailed(
            "EFFECTIVELY_ONCE with state needs an output schema without pairs of key and value",
            is_user_error=True,
        )
    return Result(sequence_id_of(message.id), properties_of_result(message), payload)
