"""Parts the brokers of a cluster from ZooKeeper, each alone, in one direction or in both.

Each broker has a relay to ZooKeeper, on a thread of the torture's process, and is told its address
in place of ZooKeeper's. A broker that is cut off still reaches bookies and clients: it must give up
by itself what others take over. ``python -m tests.torture.wires``, with the options of ``geminga
cluster up``, is the cluster whose brokers are wired so.
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


class Wires:
    """A relay to ZooKeeper for each of ``brokers``; used with ``with``, from one thread."""

    def __init__(self, brokers: Sequence[str]) -> None:
        self._reserved = ReservedPort(LOCALHOST, 0)
        self._brokers = brokers
        self._wires: dict[str, Wire] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wires", daemon=True)
        self._stack = AsyncExitStack()

    @property
    def options(self) -> tuple[str, ...]:
        """What the cluster is told, so that its ZooKeeper is where the relays lead."""
        return ("--zookeeper-port", str(self._reserved.port))

    @property
    def addresses(self) -> dict[str, str]:
        """Where each broker finds ZooKeeper, while the relays are there."""
        return {name: wire.address for name, wire in self._wires.items()}

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        os.environ[VARIABLE] = json.dumps(self.addresses)
        return self

    def __exit__(self, *_: object) -> None:
        del os.environ[VARIABLE]
        for broker in self._brokers:
            self.heal(broker)
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S_MAX)
        self._loop.close()
        self._reserved.close()

    def cut(self, broker: str, *, requests: bool, answers: bool) -> None:
        """Hold back the broker's ``requests`` to ZooKeeper, or its ``answers``, until ``heal``."""
        wire = self._wires[broker]
        if requests:
            self._call(wire.requests.clear)
        if answers:
            self._call(wire.answers.clear)

    def heal(self, broker: str) -> None:
        """Let everything through, first what has waited."""
        self._call(self._wires[broker].requests.set)
        self._call(self._wires[broker].answers.set)

    async def _open(self) -> None:
        for name in self._brokers:
            wire = Wire(f"{LOCALHOST}:{self._reserved.port}")
            self._wires[name] = await self._stack.enter_async_context(wire)

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_S_MAX)

    def _call(self, change: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(change)


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
