"""What a worker and an instance say to each other, as the worker sees it; wherever it runs."""

from __future__ import annotations

import asyncio
import logging
import socket

from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Expired,
    Failed,
    Lease,
    Started,
    StatusAnswer,
    StatusRequest,
    Stop,
    Stopped,
)
from geminga_functions.names import InstanceName
from geminga_functions.runtime.running import Ending, Order
from geminga_server.control.channel import Channel

log = logging.getLogger(__name__)


class InstanceChannel:
    """The worker's end of an instance's channel. ``started`` is set by the instance's word;
    ``failed`` is what it said last where it failed; ``is_lost`` is set once the channel has ended.
    """

    def __init__(self, name: InstanceName) -> None:
        self.name = name
        self.started = asyncio.Event()
        self.failed: Ending | None = None
        self.is_lost = asyncio.Event()
        self._answers: dict[int, asyncio.Future[str | None]] = {}
        self._requests = 0
        self._channel = Channel(self._take, lambda _: self._lost(), INSTANCE_CHANNEL)

    async def begin(self, ours: socket.socket, order: Order) -> None:
        """Tell the instance what to run, over its other end of ``ours``."""
        ours.settimeout(0)
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: self._channel, sock=ours)
        except BaseException:
            ours.close()
            raise
        self._channel.send(order.start)

    def extend_lease(self, until_s: float) -> None:
        """Tell it that it may run until ``until_s`` of the monotonic clock."""
        self._channel.send(Lease(until_s))

    async def status(self, timeout_s: float) -> str | None:
        """Ask it for its ``InstanceStatus``; None where no answer comes in time."""
        if not self._channel.is_open:
            return None
        self._requests += 1
        number = self._requests
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        self._channel.send(StatusRequest(number))
        try:
            async with asyncio.timeout(timeout_s):
                text: str | None = await answer
        except TimeoutError:
            return None
        else:
            return text or None  # it is being loaded, and counts nothing yet
        finally:
            del self._answers[number]

    def stop(self, timeout_s: float) -> None:
        """Tell it to finish what is begun within ``timeout_s``."""
        self._channel.send(Stop(timeout_s))

    def close(self) -> None:
        """End the channel, which the instance takes as the end of its worker."""
        self._channel.close()

    def _lost(self) -> None:
        self.is_lost.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)

    def _take(self, _: Channel, message: object) -> None:
        match message:
            case Started():
                self.started.set()
            case Failed():
                trace = message.trace or "the instance failed and did not say why"
                self.failed = Ending(trace, message.is_user_error)
            case Expired():
                self.failed = Ending("the lease of the instance has ended", is_lease_over=True)
            case Stopped():
                pass  # its end follows
            case StatusAnswer(request_id, status):
                answer = self._answers.get(request_id)
                if answer is not None and not answer.done():
                    answer.set_result(status)
            case _:
                log.warning(
                    "instance sends what only its worker may",
                    extra={"instance": str(self.name), "kind": type(message).__name__},
                )
