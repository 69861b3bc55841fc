"""A node in ZooKeeper that only its owner writes, by compare-and-set, through lost connections.

An answer that never came leaves in doubt whether a write was made. The next write looks first: the
node holds what we tried to write, or it is untouched, or another broker wrote it, and then we own
it no longer.

A broker owns what it owns by ephemeral nodes, which end with its session. So a record that was
loaded in one session is not written in the next: another broker may have owned it in between, and
may have read it already without having written it yet. ZooKeeper takes no request of a session that
is over, so whatever the old owner wrote was written before the next one could own it and read it.

The version alone would not do: two owners that both loaded version 5 in turn would both be allowed
to write version 6, the old one first, after the new one has read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_runtime.coordination import (
    NO_SESSION,
    Coordination,
    NodeMissing,
    SessionExpired,
    VersionMismatch,
)

# The errors that say that a record is not ours any more: fence what it is about, never retry.
OWNERSHIP_LOST = (VersionMismatch, SessionExpired)


@dataclass(slots=True, eq=False)
class OwnRecord:
    """The node ``path``. ``load`` or ``create`` comes first; calls must not overlap.

    All methods raise ``SessionExpired`` where the session is not the one it was loaded in.
    """

    coordination: Coordination
    path: str
    # The session in which it was loaded or created.
    _session_id: int = field(default=NO_SESSION, init=False)
    # The version that we read or wrote last: the next write is for this one only.
    _version: int = field(default=-1, init=False)
    # Values of writes since then that were not answered. Each may be the node's value now.
    _in_doubt: tuple[bytes, ...] = field(default=(), init=False)

    async def load(self) -> bytes:
        """The value now. Raises ``NodeMissing``."""
        # Noted before the request: a session that begins while it is under way is another one.
        self._session_id = self.coordination.session_id
        value, stat = await self.coordination.get(self.path)
        # The session may have ended while the answer was on its way, and another have begun.
        self._check_session()
        self._version = stat.version
        self._in_doubt = ()
        return value

    async def create(self, value: bytes, *, make_parents: bool = False) -> None:
        """Create the node. Raises ``NodeExists``, also where an earlier attempt made it whose
        answer was lost."""
        self._session_id = self.coordination.session_id
        await self.coordination.create(self.path, value, make_parents=make_parents)
        self._check_session()
        # ZooKeeper's number for a node that was never written again.
        self._version = 0

    async def write(self, value: bytes) -> None:
        """Replace the value. Raises ``VersionMismatch`` where another client changed or deleted
        it."""
        try:
            await self._resolve()
            self._check_session()
            # In doubt from before the request until its answer: cancellation leaves it there, too.
            self._in_doubt = (*self._in_doubt, value)
            # Other errors (a lost connection, an ended session) leave the value in doubt.
            stat = await self.coordination.set(self.path, value, version=self._version)
        except (VersionMismatch, NodeMissing):
            # No write is in doubt any more: the record is another client's, or gone.
            self._in_doubt = ()
            raise VersionMismatch(self.path) from None
        self._in_doubt = ()
        self._version = stat.version

    async def delete(self) -> None:
        """Delete the node. Raises ``NodeMissing``, ``VersionMismatch`` where another client changed
        it. Where the answer is lost, call it again: ``NodeMissing`` then means that it is gone."""
        await self._resolve()
        self._check_session()
        await self.coordination.delete(self.path, version=self._version)

    async def _resolve(self) -> None:
        """Find out what became of writes in doubt."""
        if not self._in_doubt:
            return
        value, stat = await self.coordination.get(self.path)
        if stat.version != self._version:
            # One of ours was made, or another broker wrote. The value tells, not how far the
            # version has moved: of two writes in doubt either or both may have been made.
            if value not in self._in_doubt:
                raise VersionMismatch(self.path)
            self._version = stat.version
        self._in_doubt = ()

    def _check_session(self) -> None:
        """Raise ``SessionExpired`` unless this is still the session of ``load`` or ``create``.

        Called right before a write is requested: requests that wait for an answer when a session
        ends fail, so a write that succeeds was made in the session that was checked.
        """
        # Between two sessions there is none: what is asked then could be carried out in the next
        # one.
        present = self.coordination.session_id
        if present == NO_SESSION or present != self._session_id:
            raise SessionExpired(f"the session in which {self.path} was loaded is over")
