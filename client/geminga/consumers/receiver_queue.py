"""The messages that have arrived and were not received yet, and the callers that wait for them.

The queue of a consumer has a lane for each of its topics: lanes with messages take turns, so that
a topic with a long backlog does not keep the others waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from geminga.errors import ClientError
from geminga.messages import Message

# After so many messages that were there at once, a caller lets the event loop turn. A caller that
# never waits for anything else would empty the whole queue in one turn, and permits,
# acknowledgements and answers to pings leave only when the loop turns.
TAKEN_IN_A_ROW_MAX = 64


@dataclass(slots=True, eq=False)
class Lane:
    """The messages of one topic that wait."""

    # Called with messages that leave the lane together.
    on_taken: Callable[[Sequence[Message[Any]]], None]
    messages: deque[Message[Any]] = field(default_factory=deque[Message[Any]])


@dataclass(frozen=True, slots=True, eq=False)
class _BatchReceive:
    """A caller that waits for several messages."""

    # Done when there are as many messages, or as many bytes of data, or when the time is over.
    enough: asyncio.Future[None]
    messages: int
    data_bytes: int


@dataclass(slots=True, eq=False)
class ReceiverQueue:
    """Holds what brokers send, which are no more messages than the topics of its lanes grant.

    A message leaves the queue in the same turn of the loop in which its caller goes on with it. No
    message is ever on its way to a caller, so that none is lost with a caller that is cancelled.
    """

    # The lanes with messages, the next one first.
    _ready: deque[Lane] = field(default_factory=deque[Lane], init=False)
    # Of all lanes together, at each moment; ``put``, ``clear``, ``_take`` and ``_take_run`` change
    # them together with the lanes.
    _messages: int = field(default=0, init=False)
    _data_bytes: int = field(default=0, init=False)
    # Callers that wait for one message, in their order: each future is done with whether there is a
    # message for it, or the queue has ended. A list, because few wait at the same time and an empty
    # deque takes 0.7 KB more.
    _waiting: list[asyncio.Future[bool]] = field(
        default_factory=list[asyncio.Future[bool]], init=False
    )
    # Callers that were woken and have not run yet; each will take one message. Messages beyond this
    # number are free for any caller: every other way to take one compares with it first.
    _woken: int = field(default=0, init=False)
    # Callers of ``get_many`` that wait. Nothing is reserved for them: they take what is there when
    # they run.
    _batch_receives: list[_BatchReceive] = field(default_factory=list[_BatchReceive], init=False)
    _taken_in_a_row: int = field(default=0, init=False)
    # Why nothing more arrives.
    _end: ClientError | None = field(default=None, init=False)

    def __len__(self) -> int:
        return self._messages

    def put(self, lane: Lane, messages: Sequence[Message[Any]]) -> None:
        """Take in the messages of an entry that arrived for a lane; there may be none."""
        if not messages:
            return
        # A lane is in ``_ready`` exactly while it has messages.
        if not lane.messages:
            self._ready.append(lane)
        if len(messages) == 1:  # for a message that was sent alone: 0.3 us less
            lane.messages.append(messages[0])
            self._messages += 1
            self._data_bytes += len(messages[0].data)
        else:
            lane.messages.extend(messages)
            self._messages += len(messages)
            self._data_bytes += sum([len(message.data) for message in messages])
        # A check before the call: most messages arrive while none waits for them.
        if self._waiting or self._batch_receives:
            self._wake()

    def clear(self, lane: Lane) -> int:
        """Drop the messages of a lane; says how many they were."""
        dropped = len(lane.messages)
        if dropped:
            # Callers that were woken for these messages are not told: they find none when they run,
            # and wait again.
            self._messages -= dropped
            self._data_bytes -= sum([len(message.data) for message in lane.messages])
            lane.messages.clear()
            self._ready.remove(lane)
        return dropped

    def get_ready(self) -> Message[Any] | None:
        """The next message if there is one and it needs no wait; ``None``: await ``get``."""
        # One less than the bound: the call of ``get`` that follows counts itself, reaches the bound
        # and lets the loop turn.
        is_turn_due = self._taken_in_a_row >= TAKEN_IN_A_ROW_MAX - 1
        # Messages that callers were woken for are not given away: callers get them in the order of
        # their calls.
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
        # A loop: what a caller was woken for may be gone when it runs.
        while True:
            if self._end is not None and self._messages <= self._woken:
                raise self._end
            # Wait for this caller's turn to take a message, or for the end of the queue.
            turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                is_woken = await turn
            except asyncio.CancelledError:
                # Still in line; woken with a message; or taken out of the line without one, which
                # leaves nothing to undo.
                if turn in self._waiting:
                    # A program that asks again and again for a short while must leave nothing here.
                    self._waiting.remove(turn)
                elif not turn.cancelled() and turn.result():
                    # It was woken and then cancelled: its message is the next caller's.
                    self._woken -= 1
                    self._wake()
                raise
            if is_woken:
                self._woken -= 1
            # A seek may have emptied the queue since the caller was woken.
            if self._messages > self._woken:
                return self._take()

    async def get_many(
        self, messages_max: int, data_bytes_max: int, wait_s: float
    ) -> list[Message[Any]]:
        """The next messages: as soon as there are ``messages_max`` or ``data_bytes_max``, and after
        ``wait_s`` as many as there are.

        Their data have at most ``data_bytes_max``, unless the first message alone has more. Raises
        the error that ended the queue, once it is empty.
        """
        if self._has(messages_max, data_bytes_max):
            await asyncio.sleep(0)  # for the reason of ``TAKEN_IN_A_ROW_MAX``
        elif self._end is None:
            loop = asyncio.get_running_loop()
            waiting = _BatchReceive(loop.create_future(), messages_max, data_bytes_max)
            self._batch_receives.append(waiting)
            timer = loop.call_later(wait_s, _finish, waiting.enough)
            try:
                await waiting.enough
            finally:
                # Also for a caller that is cancelled. It has taken nothing yet: the messages are
                # taken below, without an await in between.
                timer.cancel()
                self._batch_receives.remove(waiting)
        taken: list[Message[Any]] = []
        # Callers that were woken have a claim to one message each.
        count = min(messages_max, self._messages - self._woken)
        # So much must stay in the queue, at least.
        left_bytes = self._data_bytes - data_bytes_max
        while len(taken) < count:
            if taken and self._data_bytes - len(self._ready[0].messages[0].data) < left_bytes:
                break
            # Lanes take turns, message by message; the last one gives all the rest at once.
            is_last = len(self._ready) == 1
            taken += self._take_run(count - len(taken) if is_last else 1, left_bytes)
        if not taken and self._end is not None:
            raise self._end
        return taken

    def end(self, error: ClientError) -> None:
        """Note that nothing more will arrive: callers get what there is, and then ``error``."""
        if self._end is None:
            self._end = error
        # Woken with ``False``: they find that the queue has ended, or take what is left.
        while self._waiting:
            turn = self._waiting.pop(0)
            # The future of a caller that was cancelled is done, though its caller has not run yet
            # to take itself out of the line.
            if not turn.done():
                turn.set_result(False)
        for waiting in self._batch_receives:
            _finish(waiting.enough)

    def _wake(self) -> None:
        """Wake as many callers as there are messages for, in the order of their calls."""
        while self._waiting and self._messages > self._woken:
            turn = self._waiting.pop(0)
            if not turn.done():
                turn.set_result(True)
                self._woken += 1
        for waiting in self._batch_receives:
            if self._has(waiting.messages, waiting.data_bytes):
                _finish(waiting.enough)

    def _has(self, messages: int, data_bytes: int) -> bool:
        # The bytes of messages that woken callers will take are not known, so that they count here:
        # then a caller gets fewer than it wanted, sooner than it had to.
        return self._messages - self._woken >= messages or self._data_bytes >= data_bytes

    def _take(self) -> Message[Any]:
        ready = self._ready
        lane = ready[0]
        message = lane.messages.popleft()
        if not lane.messages:
            ready.popleft()
        elif len(ready) > 1:
            # The lane goes to the end: the next message is of another topic.
            ready.rotate(-1)
        self._messages -= 1
        self._data_bytes -= len(message.data)
        # Last, when the counters agree with the lanes again: the lane's owner may do anything in
        # this call.
        lane.on_taken((message,))
        return message

    def _take_run(self, count: int, left_bytes: int) -> list[Message[Any]]:
        """Take up to ``count`` messages of the next lane at once.

        At least ``left_bytes`` of data stay in the queue, unless the first message takes them.
        """
        ready = self._ready
        lane = ready[0]
        run = list(islice(lane.messages, count))
        run_bytes = sum([len(message.data) for message in run])
        while len(run) > 1 and self._data_bytes - run_bytes < left_bytes:
            run_bytes -= len(run.pop().data)
        # Not ``clear``: the run may be shorter than the lane.
        for _ in run:
            lane.messages.popleft()
        if not lane.messages:
            ready.popleft()
        else:
            ready.rotate(-1)
        self._messages -= len(run)
        self._data_bytes -= run_bytes
        # Once for all of them: permits are returned, and acknowledgements collected, together.
        lane.on_taken(run)
        return run


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
