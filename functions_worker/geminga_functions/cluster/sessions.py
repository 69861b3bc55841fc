"""The leader's view of the leases of workers, from the heartbeats that it receives. Pure.

A worker may run instances until ``lease_s`` after it sent the last heartbeat that was stored. The
leader receives a heartbeat after it was sent, so a lease that it counts from the receipt never ends
before the real one. The leader's own heartbeats tell it whether others are still on their way: when
it receives the one that it sent at a certain time, it has received all that were stored before.

A worker whose lease ended begins a new session with its next heartbeat. So a session that is over
for the leader is over for good, even if the worker returns at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

# The monotonic clocks of two machines differ in speed by far less than this factor, which makes a
# failover a tenth of a lease longer.
CLOCK_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class Session:
    """One period of a worker in which it holds a lease without interruption."""

    worker: str
    session: str


@dataclass(slots=True, eq=False)
class WorkerSessions:
    """The sessions that may hold a lease, as the leader sees them.

    Times are seconds of the leader's monotonic clock.
    """

    # The duration of a lease by the worker's own clock.
    lease_s: float
    # By live worker: the session in which it takes instances. Heartbeats add it; it goes with the
    # end of the session. Each value is also a key of ``_heard_s``; a session that was only supposed
    # is not here, and gets no instances.
    newest: dict[str, Session] = field(default_factory=dict, init=False)
    # When the last heartbeat of each session was received.
    _heard_s: dict[Session, float] = field(default_factory=dict, init=False)
    # Sessions whose worker asked for no instances.
    _draining: set[Session] = field(default_factory=set, init=False)
    # The leader has received every heartbeat that was stored before this time. It only grows.
    _caught_up_s: float = field(default=float("-inf"), init=False)

    def suppose(self, sessions: Iterable[Session], now_s: float) -> None:
        """Assume that these sessions hold a lease although no heartbeat of them was received: a new
        leader finds them in the assignments."""
        for session in sessions:
            # As if heard at this moment: its last heartbeat cannot have been later, or it would
            # come to this leader.
            self._heard_s.setdefault(session, now_s)

    def heard(self, session: Session, now_s: float) -> None:
        """Note that a heartbeat of ``session`` was received."""
        # A session that is heard for the first time is the newest of its worker: each worker sends
        # its heartbeats in order. The second condition is for a supposed one that turns out to
        # live.
        if session not in self._heard_s or session.worker not in self.newest:
            self.newest[session.worker] = session
        self._heard_s[session] = now_s

    def drain(self, session: Session) -> None:
        """Note that a worker asks for no instances as long as this session lasts."""
        if session in self._heard_s:
            self._draining.add(session)

    @property
    def draining(self) -> frozenset[str]:
        """The live workers that ask for no instances."""
        return frozenset(
            worker for worker, session in self.newest.items() if session in self._draining
        )

    def left(self, session: Session) -> None:
        """Note that a worker has ended all instances of this session."""
        self._heard_s.pop(session, None)
        self._draining.discard(session)
        if self.newest.get(session.worker) == session:
            del self.newest[session.worker]

    def caught_up(self, sent_s: float) -> None:
        """Note that the leader received its own heartbeat that it sent at ``sent_s``."""
        self._caught_up_s = max(self._caught_up_s, sent_s)

    def over(self) -> list[Session]:
        """The sessions whose leases have ended."""
        return [
            session
            for session, heard_s in self._heard_s.items()
            # Compared with the time that was caught up with, not with now: a heartbeat of this
            # session may wait in the topic, or at a broker that is slow to deliver.
            if heard_s + self.lease_s * CLOCK_MARGIN < self._caught_up_s
        ]

    def forget(self) -> list[Session]:
        """Forget the sessions whose leases have ended, and return them."""
        over = self.over()
        for session in over:
            self.left(session)
        return over

    def may_run(self, session: Session) -> bool:
        """Whether instances that were assigned to this session may still run."""
        return session in self._heard_s
