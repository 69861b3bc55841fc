"""Requests to a broker that wait for their answers: numbered, bounded, each with a deadline.

Which command answers which request is known here alone: the protocol has a dozen kinds of answers,
with the error in one of two places.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from geminga.errors import ClientError, RequestTimedOut, TooManyRequests, refusal
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_protocol.pulsar.commands import PART_NAMES

# Ten thousand producers and consumers may attach at the same time, each with a request or two.
REQUESTS_MAX = 50_000

# A timer that runs so late says that the loop was blocked, not that a broker was silent.
LATE_S = 1.0


@dataclass(slots=True)
class _OpenRequest:
    # Cancelled by a caller that gave up; an answer that comes in the same turn is then dropped.
    answer: asyncio.Future[BaseCommand]
    deadline: asyncio.TimerHandle


@dataclass(slots=True, eq=False)
class Requests:
    """The open requests of one connection.

    A request costs one future and one timer, and no task; there is none for a message.
    """

    requests_max: int = REQUESTS_MAX
    # By their ids.
    _open: dict[int, _OpenRequest] = field(default_factory=dict[int, _OpenRequest], init=False)

    def add(self, request_id: int, name: str, timeout_s: float) -> asyncio.Future[BaseCommand]:
        """Open the request ``request_id``; the future gets its answer, or an error.

        Raises ``TooManyRequests``.
        """
        if len(self._open) >= self.requests_max:
            raise TooManyRequests(self.requests_max)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[BaseCommand] = loop.create_future()
        deadline = loop.call_later(timeout_s, self._time_out, request_id, name, timeout_s)
        self._open[request_id] = _OpenRequest(answer, deadline)
        return answer

    def answered(self, command: BaseCommand) -> bool:
        """Take ``command`` for an answer; says whether it is one.

        An answer to a request that is no longer open is dropped.
        """
        if command.type not in _ANSWERS:
            return False
        part = getattr(command, PART_NAMES[command.type])
        is_success = command.type == BaseCommand.PRODUCER_SUCCESS
        if is_success and not command.producer_success.producer_ready:
            # The producer waits to be the exclusive one, which takes as long as it takes: the same
            # request is answered once more when its turn has come.
            if part.request_id in self._open:
                # From here on only the end of the connection, or of its caller, ends the request.
                self._open[part.request_id].deadline.cancel()
            return True
        request = self._open.pop(part.request_id, None)
        if request is None:
            return True
        request.deadline.cancel()
        if not request.answer.done():
            # Each kind of answer has its error, if any, in one of two pairs of fields.
            fields = part.DESCRIPTOR.fields_by_name
            # A lookup's answer has ``error`` and ``message``, a schema's ``error_code`` and
            # ``error_message``.
            for code, text in (("error", "message"), ("error_code", "error_message")):
                if code in fields and part.HasField(code):
                    request.answer.set_exception(refusal(getattr(part, code), getattr(part, text)))
                    return True
            request.answer.set_result(command)
        return True

    def forget(self, request_id: int) -> None:
        """Stop waiting for this answer; nothing happens if it has come."""
        request = self._open.pop(request_id, None)
        if request is not None:
            request.deadline.cancel()

    def fail_all(self, error: ClientError) -> None:
        """Fail all requests: no answer will come any more."""
        # Swapped first: a caller that is woken forgets its request, which is no longer here.
        requests, self._open = self._open, {}
        for request in requests.values():
            request.deadline.cancel()
            if not request.answer.done():
                request.answer.set_exception(error)

    def _time_out(self, request_id: int, name: str, timeout_s: float) -> None:
        # It is open: everything that closes a request cancels its deadline.
        request = self._open[request_id]
        loop = asyncio.get_running_loop()
        if loop.time() > request.deadline.when() + LATE_S:
            # The loop was blocked, and may run its timers before it reads: the answer may be there.
            request.deadline = loop.call_later(LATE_S, self._time_out, request_id, name, timeout_s)
            return
        del self._open[request_id]
        if not request.answer.done():
            request.answer.set_exception(RequestTimedOut(name, timeout_s))


# The commands that answer a request, by whose id they do. AUTH_RESPONSE is the client's own.
# CONNECTED is none of them: it comes before the first request.
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
