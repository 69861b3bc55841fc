"""A session with the simulated ZooKeeper whose requests a test can watch, lose, delay and refuse.

``InterceptedSession`` stands between the code under test and its session: it lists the requests,
loses chosen ones or their answers, and lets a test step in before, around and after each. What a
request does, and what else may happen to a session, is up to ``SimulatedZooKeeper``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from geminga_runtime.coordination import (
    ANY_VERSION,
    ConnectionLost,
    Coordination,
    NodeStat,
    OnChange,
    Operation,
)
from geminga_simulation.conditions import INSTANT
from geminga_simulation.zookeeper.server import SimulatedZooKeeper

ResultT = TypeVar("ResultT")

BeforeRequest = Callable[[str, str], None]
"""Called with the verb and the path of a request."""


Interceptor = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Is awaited in the place of a request, with the request as it is listed and a function that makes
it: may act first, make the request or not, and raise."""


@dataclass(frozen=True, slots=True)
class _Loss:
    verb: str
    path_part: str
    # The request is carried out, and its answer is lost.
    is_done: bool


class InterceptedSession:
    """A session whose requests can go wrong: implements ``Coordination``."""

    def __init__(self, session: Coordination, intercept: Interceptor | None = None) -> None:
        self.session = session
        # Not intercepted: it asks the server nothing.
        self.on_session = session.on_session
        # Called before each request; what it raises is raised by the request.
        self.before: BeforeRequest | None = None
        # Awaited around each request.
        self.intercept = intercept
        # All requests, oldest first, as ``"create /path"``; tests clear it. A transaction is listed
        # with the number of its operations. Parents that a creation makes are not listed.
        self.requests: list[str] = []
        # Each takes the first request that fits it, and is gone then.
        self._losses: list[_Loss] = []

    def lose(self, verb: str, path_part: str = "", *, is_done: bool) -> None:
        """Let the next request with this verb (``set``; empty: any), whose path contains
        ``path_part``, end with ``ConnectionLost``: after it was carried out (``is_done``) or
        before."""
        self._losses.append(_Loss(verb, path_part, is_done))

    async def _make(self, verb: str, path: str, act: Callable[[], Awaitable[ResultT]]) -> ResultT:
        request = f"{verb} {path}"
        # First: what ``before`` refuses was asked for all the same.
        self.requests.append(request)
        if self.before is not None:
            self.before(verb, path)
        if self.intercept is not None:
            # An interceptor may make the request never, later or twice: losses are looked for then.
            make = partial(self._make_or_lose, verb, path, act)
            result: ResultT = await self.intercept(request, make)
            return result
        return await self._make_or_lose(verb, path, act)

    async def _make_or_lose(
        self, verb: str, path: str, act: Callable[[], Awaitable[ResultT]]
    ) -> ResultT:
        for loss in self._losses:
            if loss.verb in ("", verb) and loss.path_part in path:
                break
        else:
            return await act()
        # Before the request is made: it may lead to others, which are not to be lost as well.
        self._losses.remove(loss)
        # An error of the request itself is raised as it is: there is no answer to lose then.
        if loss.is_done:
            await act()
        raise ConnectionLost(f"the test lost {verb} {path}")

    # --- Coordination -----------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """As ``Coordination.session_id``."""
        return self.session.session_id

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """As ``Coordination.create``."""
        act = partial(
            self.session.create,
            path,
            value,
            ephemeral=ephemeral,
            sequential=sequential,
            make_parents=make_parents,
        )
        return await self._make("create", path, act)

    async def get(self, path: str, *, on_change: OnChange | None = None) -> tuple[bytes, NodeStat]:
        """As ``Coordination.get``."""
        return await self._make("get", path, partial(self.session.get, path, on_change=on_change))

    async def exists(self, path: str, *, on_change: OnChange | None = None) -> NodeStat | None:
        """As ``Coordination.exists``."""
        act = partial(self.session.exists, path, on_change=on_change)
        return await self._make("exists", path, act)

    async def children(self, path: str, *, on_change: OnChange | None = None) -> list[str]:
        """As ``Coordination.children``."""
        act = partial(self.session.children, path, on_change=on_change)
        return await self._make("children", path, act)

    async def set(self, path: str, value: bytes, *, version: int = ANY_VERSION) -> NodeStat:
        """As ``Coordination.set``."""
        return await self._make(
            "set", path, partial(self.session.set, path, value, version=version)
        )

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """As ``Coordination.delete``."""
        await self._make("delete", path, partial(self.session.delete, path, version=version))

    async def transaction(self, operations: Sequence[Operation]) -> None:
        """As ``Coordination.transaction``."""
        act = partial(self.session.transaction, operations)
        await self._make("transaction", str(len(operations)), act)


class InstantSession(InterceptedSession):
    """A session of a process of its own, whose answers come in the instant of the request; with a
    ZooKeeper of its own, or a given one."""

    def __init__(self, zookeeper: SimulatedZooKeeper | None = None, host: str = "main") -> None:
        self.zookeeper = zookeeper or SimulatedZooKeeper(conditions=INSTANT)
        self.client = self.zookeeper.session(host)
        super().__init__(self.client)

    def another(self) -> InstantSession:
        """A session of another process with the same ZooKeeper."""
        return InstantSession(self.zookeeper)
