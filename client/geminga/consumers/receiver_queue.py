"""The messages that have come and were not received yet, and the callers that wait for them.

Of a consumer of several topics it has one lane for each: lanes with messages take turns, so that a
topic with a long backlog does not keep the others waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from geminga.errors import ClientError
from geminga.messages import Message

# After so many messages that were there, a caller lets the event loop turn once. One that does
# nothing else that waits would empty the whole queue in one turn, and the permits that it returns,
# acknowledgements and answers to pings leave only when the loop turns.
TAKEN_IN_A_ROW_MAX = 64


class Lane:
    """The messages of one topic; ``on_taken`` is told of those that leave it together."""

    __slots__ = ("messages", "on_taken")

    def __init__(self, on_taken: Callable[[Sequence[Message[Any]]], None]) -> None:
        self.messages: deque[Message[Any]] = deque()
        self.on_taken = on_taken


class Inbox(Protocol):
    """Takes in what comes from the topics of one consumer."""

    def put(self, lane: Lane, messages: Sequence[Message[Any]]) -> None:
        """Take in the messages of an entry that came for a lane, which may be none."""
        ...

    def clear(self, lane: Lane) -> int:
        """Forget what a lane holds; says how many messages that were."""
        ...

    def end(self, error: ClientError) -> None:
        """Nothing more will come."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Gathering:
    """A caller that waits for several messages."""

    enough: asyncio.Future[None]
    messages: int
    data_bytes: int


class ReceiverQueue:
    """Holds what brokers send, which are no more messages than the lanes' topics grant.

    A message leaves it in the same turn of the loop in which its caller goes on with it: nothing
    is on the way to a caller that is cancelled, and so nothing can be lost with one.
    """

    def __init__(self) -> None:
        self._ready: deque[Lane] = deque()  # the lanes with messages, the next one first
        self._messages = 0
        self._data_bytes = 0
        # A list, of which few wait at a time: an empty deque takes 0.7 KB more.
        self._waiting: list[asyncio.Future[bool]] = []
        # Callers that were woken and have not run yet; each will take one message.
        self._woken = 0
        self._gathering: list[_Gathering] = []
        self._taken_in_a_row = 0
        self._end: ClientError | None = None

    def __len__(self) -> int:
        return self._messages

    def put(self, lane: Lane, messages: Sequence[Message[Any]]) -> None:
        """Take in what came for a lane."""
        if not messages:
            return
        if not lane.messages:
            self._ready.append(lane)
        if len(messages) == 1:  # of one that was sent alone: 0.3 us less
            lane.messages.append(messages[0])
            self._messages += 1
            self._data_bytes += len(messages[0].data)
        else:
            lane.messages.extend(messages)
            self._messages += len(messages)
            self._data_bytes += sum([len(message.data) for message in messages])
        if self._waiting or self._gathering:
            self._wake()

    def clear(self, lane: Lane) -> int:
        """Forget what a lane holds; says how many messages that were."""
        dropped = len(lane.messages)
        if dropped:
            self._messages -= dropped
            self._data_bytes -= sum([len(message.data) for message in lane.messages])
            lane.messages.clear()
            self._ready.remove(lane)
        return dropped

    def get_ready(self) -> Message[Any] | None:
        """The next message where nothing must be waited for first, else ``None``: ask ``get``."""
        is_turn_due = self._taken_in_a_row >= TAKEN_IN_A_ROW_MAX - 1
        if is_turn_due or self._messages <= self._woken:
            return None
        self._taken_in_a_row += 1
        return self._take()

    async def get(self) -> Message[Any]:
        """The next message, waited for; callers that wait are woken in the order of their calls.

        Raises the error that ended the queue, once it is empty.
        """
        self._taken_in_a_row += 1
        if self._taken_in_a_row >= TAKEN_IN_A_ROW_MAX:
            self._taken_in_a_row = 0
            await asyncio.sleep(0)
        if not self._waiting and self._messages > self._woken:
            return self._take()
        while True:
            if self._end is not None and self._messages <= self._woken:
                raise self._end
            await self._turn()
            # A seek may have emptied the queue since the caller was woken.
            if self._messages > self._woken:
                return self._take()

    async def get_many(
        self, messages_max: int, data_bytes_max: int, wait_s: float
    ) -> list[Message[Any]]:
        """At most so many messages of at most so many bytes (but for the first), as soon as there
        are as many, and after ``wait_s`` those that there are.

        Raises the error that ended the queue, once it is empty.
        """
        if self._has(messages_max, data_bytes_max):
            await asyncio.sleep(0)  # for the reason of ``TAKEN_IN_A_ROW_MAX``
        elif self._end is None:
            loop = asyncio.get_running_loop()
            gathering = _Gathering(loop.create_future(), messages_max, data_bytes_max)
            self._gathering.append(gathering)
            timer = loop.call_later(wait_s, _finish, gathering.enough)
            try:
                await gathering.enough
            finally:
                timer.cancel()
                self._gathering.remove(gathering)
        taken: list[Message[Any]] = []
        count = min(messages_max, self._messages - self._woken)
        left_bytes = self._data_bytes - data_bytes_max
        while len(taken) < count:
            if taken and self._data_bytes - len(self._ready[0].messages[0].data) < left_bytes:
                break
            # Lanes take turns, and the last one gives the rest.
            is_last = len(self._ready) == 1
            taken += self._take_run(count - len(taken) if is_last else 1, left_bytes)
        if not taken and self._end is not None:
            raise self._end
        return taken

    def end(self, error: ClientError) -> None:
        """Nothing more will come: callers get what there is, and then ``error``."""
        if self._end is None:
            self._end = error
        while self._waiting:
            turn = self._waiting.pop(0)
            if not turn.done():
                turn.set_result(False)
        for gathering in self._gathering:
            _finish(gathering.enough)

    async def _turn(self) -> None:
        """Wait until it is this caller's turn to take a message, or the queue has ended."""
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            is_woken = await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                # A caller that asks again and again for a short while must leave nothing behind.
                self._waiting.remove(turn)
            elif not turn.cancelled() and turn.result():
                self._woken -= 1
                self._wake()  # the message that this caller will not take is the next one's
            raise
        if is_woken:
            self._woken -= 1

    def _wake(self) -> None:
        while self._waiting and self._messages > self._woken:
            turn = self._waiting.pop(0)
            if not turn.done():
                turn.set_result(True)
                self._woken += 1
        for gathering in self._gathering:
            if self._has(gathering.messages, gathering.data_bytes):
                _finish(gathering.enough)

    def _has(self, messages: int, data_bytes: int) -> bool:
        return self._messages - self._woken >= messages or self._data_bytes >= data_bytes

    def _take(self) -> Message[Any]:
        ready = self._ready
        lane = ready[0]
        message = lane.messages.popleft()
        if not lane.messages:
            ready.popleft()
        elif len(ready) > 1:
            ready.rotate(-1)
        self._messages -= 1
        self._data_bytes -= len(message.data)
        lane.on_taken((message,))
        return message

    def _take_run(self, count: int, left_bytes: int) -> list[Message[Any]]:
        """The next ``count`` of one lane at once, or one and as many as leave ``left_bytes``."""
        ready = self._ready
        lane = ready[0]
        run = list(islice(lane.messages, count))
        run_bytes = sum([len(message.data) for message in run])
        while len(run) > 1 and self._data_bytes - run_bytes < left_bytes:
            run_bytes -= len(run.pop().data)
        for _ in run:
            lane.messages.popleft()
        if not lane.messages:
            ready.popleft()
        else:
            ready.rotate(-1)
        self._messages -= len(run)
        self._data_bytes -= run_bytes
        lane.on_taken(run)
        return run


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
