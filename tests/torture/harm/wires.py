"""Relays that hold back what goes through them, in one direction or in both, or break off.

``Wires`` parts the brokers of a cluster from ZooKeeper, each alone. Each broker has a relay to
ZooKeeper, on a thread of the torture's process, and is told its address in place of ZooKeeper's. A
broker that is cut off still reaches bookies and clients: it must give up by itself what others take
over. ``python -m tests.torture.harm.wires``, with the options of ``geminga cluster up``, is the
cluster whose brokers are wired so.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self
from unittest.mock import patch

from tests.integration.relay import Wire

from geminga_cli.commands import cluster
from geminga_cli.ports import ReservedPort
from geminga_cli.supervisor import plan

# Tells the supervisor's process the addresses of the relays, by the brokers' names.
VARIABLE = "TORTURE_WIRES"
LOCALHOST = "127.0.0.1"
START_S_MAX = 10.0


class Relays:
    """A relay to each of ``targets``, addresses by name; used with ``with``, from one thread."""

    def __init__(self, targets: Mapping[str, str]) -> None:
        self._targets = targets
        self._wires: dict[str, Wire] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._stack = AsyncExitStack()

    @property
    def addresses(self) -> dict[str, str]:
        """Where each target is found, while the relays are there."""
        return {name: wire.address for name, wire in self._wires.items()}

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._targets:
            self.heal(name)
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S_MAX)
        self._loop.close()

    def cut(self, name: str, *, requests: bool, answers: bool) -> None:
        """Hold back the ``requests`` to the target, or its ``answers``, until ``heal``."""
        wire = self._wires[name]
        if requests:
            self._call(wire.requests.clear)
        if answers:
            self._call(wire.answers.clear)

    def refuse(self, name: str) -> None:
        """Break all connections to the target, and let none be made until ``heal``. What is on its
        way is lost."""
        wire = self._wires[name]

        def refuse() -> None:
            wire.refuses = True
            wire.cut()

        self._call(refuse)

    def heal(self, name: str) -> None:
        """Let everything through, first what has waited."""
        wire = self._wires[name]

        def heal() -> None:
            wire.refuses = False
            wire.requests.set()
            wire.answers.set()

        self._call(heal)

    async def _open(self) -> None:
        for name, target in self._targets.items():
            self._wires[name] = await self._stack.enter_async_context(Wire(target))

    async def _close(self) -> None:
        await self._stack.aclose()
        # The thread that carries bytes finds that both ends are gone.
        carrying = asyncio.all_tasks() - {asyncio.current_task()}
        if carrying:
            await asyncio.wait(carrying, timeout=START_S_MAX / 2)

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S_MAX)

    def _call(self, change: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(change)


class Wires(Relays):
    """A relay to ZooKeeper for each of ``brokers``."""

    def __init__(self, brokers: Sequence[str]) -> None:
        self._reserved = ReservedPort(LOCALHOST, 0)
        super().__init__(dict.fromkeys(brokers, f"{LOCALHOST}:{self._reserved.port}"))

    @property
    def options(self) -> tuple[str, ...]:
        """What the cluster is told, so that its ZooKeeper is where the relays lead."""
        return ("--zookeeper-port", str(self._reserved.port))

    def __enter__(self) -> Self:
        super().__enter__()
        os.environ[VARIABLE] = json.dumps(self.addresses)
        return self

    def __exit__(self, *error: object) -> None:
        del os.environ[VARIABLE]
        super().__exit__(*error)
        self._reserved.close()


def main() -> int:
    """Run ``geminga cluster up`` as it is, the brokers' ZooKeeper aside."""
    wires: Mapping[str, str] = json.loads(os.environ[VARIABLE])
    options_of = plan.broker_options

    def wired(settings: Any, ports_of: Any, name: str, zookeeper: str) -> Mapping[str, str]:
        return options_of(settings, ports_of, name, wires.get(name, zookeeper))

    with patch("geminga_cli.supervisor.plan.broker_options", wired):
        return cluster.main(["up", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
