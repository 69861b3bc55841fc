"""Requests to a broker that wait for their answers: numbered, bounded, each with a deadline."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from geminga.errors import ClientError, RequestTimedOut, TooManyRequests, refusal
from geminga_protocol.pulsar.api_pb2 import BaseCommand, ServerError
from geminga_protocol.pulsar.commands import PART_NAMES

# Far more than producers and consumers open at a time, few enough to hold.
REQUESTS_MAX = 50_000

# A timer that runs later than this says that the loop was blocked, not that a broker was silent.
LATE_S = 1.0


@dataclass(slots=True)
class _Open:
    answer: asyncio.Future[BaseCommand]
    deadline: asyncio.TimerHandle


class Requests:
    """The open requests of one connection.

    A request costs one future and one timer, and no task; there is none for a message.
    """

    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._requests_max = requests_max
        self._open: dict[int, _Open] = {}
        self._next_id = 0

    def next_id(self) -> int:
        """A request id that this connection did not use before."""
        self._next_id += 1
        return self._next_id

    def add(self, request_id: int, name: str, timeout_s: float) -> asyncio.Future[BaseCommand]:
        """Open the request ``request_id``; the future gets its answer, or an error.

        Raises ``TooManyRequests``.
        """
        if len(self._open) >= self._requests_max:
            raise TooManyRequests(self._requests_max)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[BaseCommand] = loop.create_future()
        deadline = loop.call_later(timeout_s, self._time_out, request_id, name, timeout_s)
        self._open[request_id] = _Open(answer, deadline)
        return answer

    def answered(self, command: BaseCommand) -> bool:
        """Take ``command`` for an answer; says whether it is one.

        An answer to a request that is no longer open is dropped.
        """
        request_id, error = _answer_to(command)
        if request_id is None:
            return False
        if _is_waiting(command):
            if request_id in self._open:
                self._open[request_id].deadline.cancel()
            return True
        request = self._open.pop(request_id, None)
        if request is None:
            return True
        request.deadline.cancel()
        if request.answer.done():
            return True
        if error is None:
            request.answer.set_result(command)
        else:
            request.answer.set_exception(error)
        return True

    def forget(self, request_id: int) -> None:
        """Stop waiting for this answer; nothing happens if it has come."""
        request = self._open.pop(request_id, None)
        if request is not None:
            request.deadline.cancel()

    def fail_all(self, error: ClientError) -> None:
        """No answer will come any more."""
        requests, self._open = self._open, {}
        for request in requests.values():
            request.deadline.cancel()
            if not request.answer.done():
                request.answer.set_exception(error)

    def _time_out(self, request_id: int, name: str, timeout_s: float) -> None:
        request = self._open[request_id]
        loop = asyncio.get_running_loop()
        if loop.time() > request.deadline.when() + LATE_S:
            # The loop was blocked, and may run its timers before it reads: the answer may be there.
            request.deadline = loop.call_later(LATE_S, self._time_out, request_id, name, timeout_s)
            return
        del self._open[request_id]
        if not request.answer.done():
            request.answer.set_exception(RequestTimedOut(name, timeout_s))


def _is_waiting(command: BaseCommand) -> bool:
    """Is it a producer's first answer while it waits to be the exclusive one?

    That takes as long as it takes; the same request is answered once more when its turn comes.
    """
    is_success = command.type == BaseCommand.PRODUCER_SUCCESS
    return is_success and not command.producer_success.producer_ready


def _answer_to(command: BaseCommand) -> tuple[int | None, ClientError | None]:
    """Which request ``command`` answers, if any, and the error that it reports, if any."""
    if command.type not in _ANSWERS:
        return None, None
    part = getattr(command, PART_NAMES[command.type])
    fields = part.DESCRIPTOR.fields_by_name
    request_id: int = part.request_id
    for error_field, message_field in (("error", "message"), ("error_code", "error_message")):
        if error_field in fields and part.HasField(error_field):
            error: ServerError.ValueType = getattr(part, error_field)
            return request_id, refusal(error, getattr(part, message_field))
    return request_id, None


_ANSWERS = frozenset(
    value
    for name, value in BaseCommand.Type.items()
    if name.endswith("_RESPONSE") and name != "AUTH_RESPONSE"
) | {
    BaseCommand.SUCCESS,
    BaseCommand.ERROR,
    BaseCommand.PRODUCER_SUCCESS,
    BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
}
