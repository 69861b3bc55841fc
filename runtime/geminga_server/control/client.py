"""The sides that connect to a supervisor: a part, which obeys it, and an operator's command, which
makes one request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from geminga_runtime.control_codec import (
    Drain,
    Drained,
    Fault,
    HealthAnswer,
    HealthRequest,
    Hello,
    Instruction,
    InstructionAnswer,
    Ping,
    Pong,
    Ready,
    SetLogLevel,
)
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.control.channel import Channel, connect
from geminga_server.control.readiness import announce_readiness
from geminga_server.control.supervision import CONTROL_SOCKET_VARIABLE, part_name
from geminga_server.errors import ConfigError, ControlError
from geminga_server.logging import set_log_level

log = logging.getLogger(__name__)

# A supervisor listens before it starts a part: a part waits only where the machine is very busy.
CONNECT_TIMEOUT_S = 5.0
# A supervisor answers at once: it does not wait for what it begins.
ANSWER_TIMEOUT_S = 10.0
# Health checks of one part under way at once: a second only begins when the first hangs.
HEALTH_CHECKS_MAX = 4


async def instruct(path: Path, instruction: Instruction) -> InstructionAnswer:
    """Send an instruction to the supervisor that listens at ``path``, and return its answer. Raises
    ``OSError`` where none listens or answers in time, ``ControlError`` where it ends before."""
    answer: asyncio.Future[InstructionAnswer] = asyncio.get_running_loop().create_future()

    # Both may be called after the answer has come or the wait has timed out.
    def receive(_channel: Channel, message: object) -> None:
        if isinstance(message, InstructionAnswer) and not answer.done():
            answer.set_result(message)

    def lose(_channel: Channel) -> None:
        if not answer.done():
            answer.set_exception(ControlError("the supervisor ended before it answered"))

    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        channel = await connect(path, lambda: Channel(receive, lose))
        try:
            channel.send(instruction)
            return await answer
        finally:
            channel.close()


def _ignore_fault(fault: Fault) -> None:
    log.warning("fault not supported", extra={"fault": fault.name})


@dataclass(frozen=True, slots=True)
class PartCommands:
    """What a part does at a supervisor's orders; only ``shutdown`` must be given."""

    # Asks the part to end, because the supervisor did; called with the reason.
    shutdown: Callable[[str], None]
    # Raises a ``GemingaError`` that says what does not work; None: the part is healthy as long as
    # it answers.
    check_health: Callable[[], Awaitable[None]] | None = None
    # Returns when nothing is under way; called with the seconds that it may take. None: the part
    # has nothing to finish.
    drain: Callable[[float], Awaitable[None]] | None = None
    # Raises ``ConfigError`` for what is no level.
    set_log_level: Callable[[str], None] = set_log_level
    inject: Callable[[Fault], None] = _ignore_fault


class ControlClient(Service):
    """The part's side: says hello on opening, then obeys ``commands``.

    Opening raises ``ControlError`` where no supervisor listens at ``path``. When the channel ends,
    the supervisor has died: ``commands.shutdown`` is called.
    """

    def __init__(self, path: Path, part: str, version: str, commands: PartCommands) -> None:
        super().__init__()
        self._path = path
        self._part = part
        self._version = version
        self._commands = commands
        self._channel: Channel | None = None
        # Checks under way.
        self._health_checks = 0

    async def _open(self, stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._channel = await connect(
                    self._path, lambda: Channel(self._receive, self._lose)
                )
        except OSError as error:  # TimeoutError is one
            raise ControlError(f"no supervisor answers at {self._path}: {error}") from error
        # From here on the supervisor sees the end of this process by the end of the channel,
        # however it ends: the kernel closes the socket of a process that was killed, too.
        stack.callback(self._channel.close)
        self._channel.send(Hello(self._part, os.getpid(), self._version))

    def send(self, message: object) -> None:
        """Send the supervisor a message, as ``Ready`` once this part serves."""
        assert self._channel is not None, "the control client is not open"
        self._channel.send(message)

    def _receive(self, _channel: Channel, message: object) -> None:
        match message:
            # In tasks: a check or a drain that hangs must not keep the part from answering pings.
            case HealthRequest(request_id):
                self.spawn(self._check_health(request_id), name="health check")
            case Ping():
                self.send(Pong())
            case Drain(deadline_s):
                self.spawn(self._drain(deadline_s), name="drain")
            case SetLogLevel(level):
                try:
                    self._commands.set_log_level(level)
                except ConfigError as error:
                    # A mistake of the supervisor's operator, which must not end the channel.
                    log.warning("log level not changed", extra={"reason": str(error)})
            case Fault():
                self._commands.inject(message)
            case _:
                raise ControlError(f"a supervisor sent {type(message).__name__}")

    async def _check_health(self, request_id: int) -> None:
        if self._health_checks >= HEALTH_CHECKS_MAX:
            reason = f"{self._health_checks} health checks hang already"
            self.send(HealthAnswer(request_id, is_healthy=False, reason=reason))
            return
        # No ``await`` since the count was compared: no more than the bound pass.
        self._health_checks += 1
        try:
            if self._commands.check_health is not None:
                await self._commands.check_health()
            self.send(HealthAnswer(request_id, is_healthy=True))
        # Any other error is a mistake of ours: the task logs it, and the supervisor, which gets no
        # answer, takes the part for unhealthy when its time is up.
        except GemingaError as error:
            # Cut off: the whole answer has to fit into a control message.
            self.send(HealthAnswer(request_id, is_healthy=False, reason=str(error)[:1000]))
        finally:
            self._health_checks -= 1

    async def _drain(self, deadline_s: float) -> None:
        if self._commands.drain is not None:
            # Where this fails, no ``Drained`` is sent, and the supervisor's own deadline ends its
            # wait.
            await self._commands.drain(deadline_s)
        self.send(Drained())

    def _lose(self, _channel: Channel) -> None:
        # The end of a channel that this part closes itself is no news.
        if not self._is_closing:
            # A part does not outlive its supervisor: the parts of the next one need its ports and
            # directories.
            self._commands.shutdown("the supervisor is gone")


@asynccontextmanager
async def obeying_supervisor(
    kind: str, version: str, commands: PartCommands, addresses: Mapping[str, str]
) -> AsyncGenerator[None]:
    """Report to the supervisor that a part of this ``kind`` serves at ``addresses``, and obey it
    within the block. Without a supervisor, report it to a service manager. Raises ``ControlError``
    as ``ControlClient`` does."""
    socket_path = os.environ.get(CONTROL_SOCKET_VARIABLE)
    if not socket_path:
        announce_readiness(" ".join(addresses.values()))
        yield
        return
    # Opened when the part serves already: a supervisor that gets hello gets the addresses next.
    async with ControlClient(Path(socket_path), part_name(kind), version, commands) as control:
        control.send(Ready(addresses))
        yield
