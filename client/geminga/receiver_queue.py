"""The messages that have come and were not received yet, and the callers that wait for the next.

A broker sends no more messages than it was granted permits: the queue returns the permit of every
message that leaves it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from geminga.errors import ClientError
from geminga.messages import Message


class ReceiverQueue:
    """Holds as many messages as permits were granted, a little more where batches overshoot.

    ``return_permits`` is told how many messages left it; less than none when some came back.
    """

    def __init__(self, return_permits: Callable[[int], None]) -> None:
        self._return_permits = return_permits
        self._messages: deque[Message] = deque()
        self._waiting: deque[asyncio.Future[Message]] = deque()
        self._end: ClientError | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Sequence[Message], *, left_out: int = 0) -> None:
        """Take in what came; ``left_out`` messages used permits too, and are not to be received."""
        permits = left_out
        for message in messages:
            if self._give(message):
                permits += 1
            else:
                self._messages.append(message)
        if permits:
            self._return_permits(permits)

    async def get(self) -> Message:
        """The oldest message, waited for; callers are served in the order of their calls.

        Raises the error that ended the queue, once it is empty.
        """
        if self._messages:
            message = self._messages.popleft()
            self._return_permits(1)
            return message
        if self._end is not None:
            raise self._end
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                # A caller that asks again and again for a short while must leave nothing behind.
                self._waiting.remove(waiter)
            elif not waiter.cancelled() and waiter.exception() is None:
                # The message was given to this caller in the turn in which it was cancelled.
                self._take_back(waiter.result())
            raise

    def clear(self) -> int:
        """Forget what is held; says how many messages that were, whose permits are not returned."""
        dropped = len(self._messages)
        self._messages.clear()
        return dropped

    def end(self, error: ClientError) -> None:
        """Nothing more will come: ``get`` raises ``error`` now and later."""
        if self._end is None:
            self._end = error
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(self._end)

    def _give(self, message: Message) -> bool:
        """Hand a message to the caller that waits longest; says whether there is one."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(message)
                return True
        return False

    def _take_back(self, message: Message) -> None:
        if not self._give(message):
            self._messages.appendleft(message)
            self._return_permits(-1)
