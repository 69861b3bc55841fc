"""An instance in a thread of the worker, for functions that are trusted.

The instance shares the worker's interpreter: it starts at once and takes little memory. But nothing
limits it, and its function can use only what the worker has installed. Python cannot end a thread
by force: a function that never returns keeps its instance present until the worker ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from geminga_functions.errors import PackageRefused
from geminga_functions.instance.worker_link import loop_runner
from geminga_functions.names import InstanceName
from geminga_functions.runtime.channel import RunningInstance
from geminga_functions.runtime.runner import Ending, Order
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# How long after the end of the thread the worker waits for the end of the channel.
LAST_WORDS_S = 1.0

# Runs an instance with its end of the channel, until the channel ends or a ``Stop`` comes.
Serve = Callable[[socket.socket], Coroutine[Any, Any, None]]


class ThreadRunner(Service):
    """Starts instances as threads, each with an event loop of its own on which ``serve`` runs."""

    def __init__(self, serve: Serve) -> None:
        super().__init__()
        self._serve = serve

    async def start(self, order: Order) -> ThreadInstance:
        """Start an instance. Raises ``OSError`` if the machine cannot.

        Raises ``PackageRefused`` for a function that requires an environment of its own.
        """
        # The package has an environment of its own, whose modules this interpreter does not have.
        if order.python != Path(sys.executable):
            raise PackageRefused(
                "the package requires distributions, which instances in threads cannot have"
            )
        # The same channel as that of a process, so that an instance is the same in both.
        ours, theirs = socket.socketpair()
        # The thread starts here, and waits for ``Start`` with its loop blocked.
        instance = ThreadInstance(order.name, self._serve, theirs)
        self.spawn(instance.follow(), name=f"thread of {order.name}")
        try:
            await instance.begin(ours, order)
        except BaseException:
            instance.kill()
            raise
        return instance


class ThreadInstance(RunningInstance):
    """An instance in a thread. It cannot be forced: ``stop`` returns only when the code does."""

    UNSTOPPED = "instance in a thread does not stop"

    def __init__(self, name: InstanceName, serve: Serve, theirs: socket.socket) -> None:
        super().__init__(name, None, {"instance": str(name)})
        self._loop = asyncio.get_running_loop()
        # Its result is the traceback of what ended the thread, empty at an orderly end.
        self._thread_ended: asyncio.Future[str] = self._loop.create_future()
        # A daemon thread: one that hangs must not keep the worker from ending.
        Thread(target=self._run, args=(serve, theirs), name=str(name), daemon=True).start()

    def _run(self, serve: Serve, theirs: socket.socket) -> None:
        """In the thread: run the instance to its end, and report it to the worker's loop."""
        trace = ""
        try:
            with theirs:
                try:
                    with loop_runner() as runner:
                        runner.run(serve(theirs))
                finally:
                    # Closing the socket would not wake the instance's thread of the channel, which
                    # waits for a message; a shutdown does.
                    with suppress(OSError):
                        theirs.shutdown(socket.SHUT_RDWR)
        except BaseException:  # noqa: BLE001 - SystemExit too: a function may raise it
            trace = traceback.format_exc()
        with suppress(RuntimeError):  # the worker's loop is closed: nothing waits for this
            # The last thing that the thread does: ``ended`` must not be done while it runs.
            self._loop.call_soon_threadsafe(self._thread_ended.set_result, trace)

    async def follow(self) -> None:
        """Wait for the end of the thread, then set ``ended``."""
        ending = Ending("the worker did not follow the thread to its end")
        try:
            trace = await self._thread_ended
            # The last message of the instance may still be in the socket.
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._is_lost.wait()
            # As in ``ProcessInstance``: the instance's own words first.
            if self._failed is not None:
                ending = self._failed
            elif self._is_stopping:
                ending = Ending()
            else:
                ending = Ending(trace or "the instance ended by itself", is_user_error=True)
        finally:
            self._channel.close()
            self.ended.set_result(ending)
