"""What the leader knows of the leases of workers, from the heartbeats that it receives. Pure.

A worker may run instances until ``lease_s`` after it sent the last heartbeat that was stored. The
leader receives heartbeats later than they were sent, so a lease that it reckons from the receipt
never ends before the real one. That none is on its way, it knows from its own heartbeats: when it
receives the one that it sent at a time, it has received all that were stored before.

A worker whose lease ended begins a new session with its next heartbeat. So a session that is over
for the leader is over for good, even where the worker comes back at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Monotonic clocks of two machines run apart by less than this.
CLOCK_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class Session:
    """One life of a worker: from a start, or from the end of a lease, to the end of the next."""

    worker: str
    session: str


class WorkerSessions:
    """The sessions that may hold a lease, as the leader sees them.

    Times are seconds of the leader's monotonic clock.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s * CLOCK_MARGIN
        # When the last heartbeat of a session was received.
        self._heard_s: dict[Session, float] = {}
        self._newest: dict[str, Session] = {}
        # Those whose worker wants no instances.
        self._draining: set[Session] = set()
        self._caught_up_s = float("-inf")

    def suppose(self, sessions: Iterable[Session], now_s: float) -> None:
        """These sessions may hold a lease, although nothing was heard of them yet: a new leader
        finds them in the assignments."""
        for session in sessions:
            self._heard_s.setdefault(session, now_s)

    def heard(self, session: Session, now_s: float) -> None:
        """A heartbeat was received."""
        if session not in self._heard_s or session.worker not in self._newest:
            self._newest[session.worker] = session
        self._heard_s[session] = now_s

    def drain(self, session: Session) -> None:
        """A worker wants no instances, as long as this session lasts."""
        if session in self._heard_s:
            self._draining.add(session)

    @property
    def draining(self) -> frozenset[str]:
        """The workers that are there and want no instances."""
        return frozenset(
            worker for worker, session in self._newest.items() if session in self._draining
        )

    def left(self, session: Session) -> None:
        """A worker said that it runs nothing any more in this session."""
        self._heard_s.pop(session, None)
        self._draining.discard(session)
        if self._newest.get(session.worker) == session:
            del self._newest[session.worker]

    def caught_up(self, sent_s: float) -> None:
        """The leader received the heartbeat that it sent at ``sent_s``."""
        self._caught_up_s = max(self._caught_up_s, sent_s)

    def over(self) -> list[Session]:
        """The sessions whose leases have ended."""
        return [
            session
            for session, heard_s in self._heard_s.items()
            if heard_s + self._lease_s < self._caught_up_s
        ]

    def forget(self) -> list[Session]:
        """Forget the sessions whose leases have ended, and return them."""
        over = self.over()
        for session in over:
            self.left(session)
        return over

    def may_run(self, session: Session) -> bool:
        """Whether what was assigned to this session may still run."""
        return session in self._heard_s

    def current(self, worker: str) -> Session | None:
        """The session in which the worker takes instances; None for a worker that is not there."""
        return self._newest.get(worker)

    def workers(self) -> list[str]:
        """The workers that are there."""
        return sorted(self._newest)
