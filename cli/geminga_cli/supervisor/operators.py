"""What operators ask of a running supervisor, through the socket in its data directory.

The supervisor answers at once: what was asked for has begun. To see it done, an operator polls the
status, as ``add`` and ``stop`` do.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from geminga_cli.errors import CannotObey, NoSupervisor
from geminga_cli.supervisor.lifecycle.fleet import START_ATTEMPTS_MAX, START_TIMEOUT_S
from geminga_cli.supervisor.lifecycle.orders import Phase
from geminga_cli.supervisor.settings import CONTROL_SOCKET_NAME
from geminga_runtime.clock import Clock
from geminga_runtime.control_codec import Instruction
from geminga_server.control.client import instruct
from geminga_server.errors import ControlError

POLL_S = 0.1
# By then the supervisor has killed whatever did not become ready.
READY_TIMEOUT_S = START_ATTEMPTS_MAX * START_TIMEOUT_S
# Longer than any part may take to stop.
STOP_TIMEOUT_S = 60.0


class Operator:
    """Asks the supervisor of ``data_directory``.

    All methods raise ``NoSupervisor``, and ``CannotObey`` where the supervisor refuses.
    """

    def __init__(self, data_directory: Path, clock: Clock) -> None:
        self._data_directory = data_directory
        self._socket = data_directory / CONTROL_SOCKET_NAME
        self._clock = clock

    async def status(self) -> dict[str, dict[str, Any]]:
        """Every part by name: its ``state``, ``pid``, ``restarts``, ``log`` and ``addresses``."""
        status: dict[str, dict[str, Any]] = await self._ask("status")
        return status

    async def kill(self, part: str, *, keep_down: bool = False) -> None:
        """End the part as a crash does; it is started again unless it is kept down."""
        await self._ask("kill", part, *(["keep_down"] if keep_down else []))

    async def pause(self, part: str) -> None:
        """Stop the part with SIGSTOP."""
        await self._ask("pause", part)

    async def resume(self, part: str) -> None:
        """Continue a part that was paused, or start one that was kept down."""
        await self._ask("resume", part)

    async def add(self, kind: str) -> dict[str, Any]:
        """Start one more part and wait until it is ready; returns its status."""
        # The supervisor chose the name: the lowest number that was free.
        name: str = (await self._ask("add", kind))["part"]
        deadline_s = self._clock.monotonic() + READY_TIMEOUT_S
        # A part that fails to start is started again by the supervisor, so only time tells that it
        # will not become ready.
        while (added := (await self.status())[name])["state"] != Phase.READY.value:
            if self._clock.monotonic() > deadline_s:
                raise CannotObey(f"{name} was not ready in {READY_TIMEOUT_S:g} s: see its log")
            await asyncio.sleep(POLL_S)
        return added

    async def stop(self) -> None:
        """Stop everything in order, and wait until it has ended."""
        await self._ask("stop")
        deadline_s = self._clock.monotonic() + STOP_TIMEOUT_S
        # The supervisor removes its socket last: the control server opened first.
        while self._socket.exists():
            if self._clock.monotonic() > deadline_s:
                raise CannotObey(f"not everything has ended in {STOP_TIMEOUT_S:g} s")
            await asyncio.sleep(POLL_S)

    async def _ask(self, action: str, part: str = "", *options: str) -> Any:  # noqa: ANN401 - JSON
        instruction = Instruction(action, part, dict.fromkeys(options, ""))
        try:
            # No socket, or no process behind it, is the same to an operator: no supervisor.
            answer = await instruct(self._socket, instruction)
        except (OSError, ControlError) as error:
            raise NoSupervisor(self._data_directory, str(error)) from error
        if not answer.is_done:
            raise CannotObey(answer.text)
        return json.loads(answer.text)
