"""A ZooKeeper in memory, and sessions with it that may lose their connection, expire, or die.

``SimulatedZooKeeper`` is the server: it never fails by itself. ``session(host)`` gives a
``geminga_runtime.coordination.Coordination`` that behaves as the real adapter does
(``geminga_server.zookeeper``): requests are held while there is no connection, what was on the way
when it broke fails with ``ConnectionLost``, done or not; each watch is called once, also when the
connection breaks; a session that heard nothing for most of its time-out is reported as doubtful
before the server ends it. A host that is paused cannot report that in time: then the server ends
the session first, as in the real world.

``fall_behind`` makes some sessions those of a follower that learns of changes later than the
leader; at all other times nothing tells one server from another.

Heartbeats are no events here: when a session falls silent, its last heartbeat is taken to be a
chance moment within the ping interval before. The tree is ``node_tree.py``, the client's side
``link.py`` and ``session.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextvars import copy_context

from geminga_simulation.canary import CHANCES_PER_STRIKE
from geminga_simulation.conditions import CoordinationConditions
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.event_loop.incarnation import Incarnation
from geminga_simulation.event_loop.loop import SimulatedLoop, running_loop
from geminga_simulation.zookeeper.link import SessionLink
from geminga_simulation.zookeeper.node_tree import Event, NodeTree
from geminga_simulation.zookeeper.requests import Follower, Replica, Watch
from geminga_simulation.zookeeper.session import SimulatedSession
from geminga_simulation.zookeeper.write_troubles import WriteTroubles

SESSION_TIMEOUT_S_DEFAULT = 6.0
# Clients ping when a third of the time-out has passed in silence.
PINGS_PER_TIMEOUT = 3
# Ids look as the real ones do: the server's number in the high byte.
SESSION_ID_FIRST = 1 << 56


class SimulatedZooKeeper:
    """The server: the tree, the watches, the sessions that live; ``loop`` is by default the one
    that runs. Servers of one loop have each a ``name`` of its own."""

    def __init__(
        self,
        loop: SimulatedLoop | None = None,
        conditions: CoordinationConditions | None = None,
        *,
        name: str = "zookeeper",
    ) -> None:
        self.loop = loop = loop or running_loop()
        # A stream of its own, and one for the troubles: planning one shifts no delays.
        self.random = loop.stream(name)
        self.conditions = conditions or CoordinationConditions()
        self.troubles = WriteTroubles(loop.stream(f"troubles of {name}"))
        # What the server does by itself happens in a process of its own, which never dies.
        self.context = loop.incarnate(name).context
        self.tree = NodeTree(self._fire_watches, SimulatedClock(loop).wall_ms)
        # All servers of the ensemble but one are as the leader; this one lags, when there is one.
        self.leader = Replica(self.tree)
        # None at most times: the others of the ensemble are never behind.
        self.follower: Follower | None = None
        # A canary: now and then a change fires no watch.
        self.is_deaf = False
        self.isolated_hosts: dict[str, None] = {}
        # It stands still, or is being restarted: nothing gets through, and no silence counts.
        self.is_away = False
        # Live sessions at the server, by id: the timer that ends it, None while it is heard of. A
        # session lives as long as its id is here.
        self._expiries: dict[int, asyncio.TimerHandle | None] = {}
        # The last id given to a session.
        self._session_id = SESSION_ID_FIRST
        self._clients: list[SimulatedSession] = []
        # Observers outside of the simulated world, called at once with each change of a node.
        self.observers: list[Callable[[Event, str], None]] = []

    def session(
        self, host: str = "main", *, timeout_s: float = SESSION_TIMEOUT_S_DEFAULT
    ) -> SimulatedSession:
        """A session for the running process on ``host``, connected at once if that can be."""
        client = SimulatedSession(self, host, copy_context(), timeout_s)
        # Those of dead processes are dropped here, so that a long story does not pile them up.
        self._clients = [known for known in self._clients if not known.is_over]
        self._clients.append(client)
        client.connect()
        return client

    # --- what other clients do, at once -----------------------------------------------------

    def put(self, path: str, value: bytes = b"") -> None:
        """Let a node hold ``value``; it is made with its parents where it is missing."""
        if self.tree.exists(path) is not None:
            self.tree.set(path, value)
            return
        parent = path.rpartition("/")[0]
        if parent and self.tree.exists(parent) is None:
            self.put(parent)
        self.tree.create(path, value)

    def remove(self, path: str) -> None:
        """Delete a node. Raises ``NodeMissing``, ``NodeNotEmpty``."""
        self.tree.delete(path)

    def watch_count(self, path: str) -> int:
        """How many watches are set on a node, and on the list of its children."""
        leader = self.leader
        return len(leader.value_watches.get(path, ())) + len(leader.children_watches.get(path, ()))

    # --- faults -----------------------------------------------------------------------------

    def sessions(self, host: str | None = None) -> list[SimulatedSession]:
        """The sessions of living processes (of ``host``), oldest first."""
        return [
            client for client in self._clients if not client.is_over and host in (None, client.host)
        ]

    def expire(self, client: SessionLink, noticed_s: float = 0.0) -> None:
        """End a session at the server now. Its client is the last to learn of it: by the end of its
        connection, which comes in ``noticed_s`` or at its next request."""
        # The server first: what the client still asks is refused, whatever it believes.
        self.end(client.session_id)
        # The id goes with the timer: by then the client may have a new session, whose connection
        # must not break.
        if noticed_s:
            self.loop.after(noticed_s, client.cut_link, client.session_id)
        else:
            client.cut_link()

    def isolate(self, host: str) -> None:
        """Nothing gets through between ``host`` and the server, until ``restore``."""
        # First: a client that notices the break must find that it cannot reconnect.
        self.isolated_hosts[host] = None
        for client in self.sessions(host):
            client.cut_link()

    def restore(self, host: str) -> None:
        """Everything gets through again."""
        self.isolated_hosts.pop(host, None)
        for client in self.sessions(host):
            client.reconnect_later()

    def go_away(self) -> None:
        """The server stands still or is restarted, until ``come_back``."""
        # First: a session whose connection breaks must not begin to count its silence.
        self.is_away = True
        for client in self.sessions():
            client.cut_link()
        self.catch_up()
        for session_id in self._expiries:
            self.stop_silence(session_id)

    def come_back(self, *, keeps_sessions: bool) -> None:
        """Go on, with the sessions that there were, each with a new time-out, as after a restart;
        or end them all, as a server that stood still, for which all of them were silent."""
        # First: only then silences count, and clients get through.
        self.is_away = False
        if not keeps_sessions:
            for session_id in list(self._expiries):
                self.end(session_id)
        for session_id in self._expiries:
            self.count_silence(session_id, SESSION_TIMEOUT_S_DEFAULT)
        for client in self.sessions():
            client.reconnect_later()

    def fall_behind(self, clients: Collection[SimulatedSession]) -> None:
        """Connect these sessions to a follower that learns of no change until ``catch_up``.
        Sessions that reconnect meanwhile come to it or to the leader."""
        assert self.follower is None, "there is one follower, and it lags already"
        # A copy, not a log of changes: stories fall behind seldom, and their trees are small.
        self.follower = Follower(self.tree.copy(), since_s=self.loop.now_s)
        # The others choose a server when they reconnect.
        connected = [client for client in clients if client.is_link_up]
        # Their watches, too: they fire when the follower learns of the change.
        self.leader.move(self.follower, connected)
        for client in connected:
            client.replica = self.follower

    def catch_up(self) -> None:
        """The follower learns of all that it has missed."""
        # First: answers to what waited come from the leader.
        follower, self.follower = self.follower, None
        if follower is None:
            return
        # Answers and events that it owes leave before anything that the leader answers. In the
        # order in which they came: answers and events of one session keep their order.
        for act in follower.behind:
            act()
        clients = [client for client in self._clients if client.replica is follower]
        follower.move(self.leader, clients)
        for client in clients:
            client.go_on(self.leader)

    def replica_for(self, client: SessionLink) -> Replica:
        """The server that a session reconnects to: none that knows less than it has seen."""
        follower = self.follower
        # ZooKeeper's servers refuse a client that has seen more than they have.
        if follower is None or client.seen_zxid > follower.tree.zxid:
            return self.leader
        return self.random.choice((self.leader, follower))

    def silence(self, host: str) -> None:
        """The processes of ``host`` stand still: their pings stop."""
        for client in self.sessions(host):
            self.count_silence(client.session_id, client.timeout_s)

    def hear(self, host: str) -> None:
        """The processes of ``host`` go on."""
        for client in self.sessions(host):
            if client.is_link_up:
                self.stop_silence(client.session_id)

    def kill(self, incarnation: Incarnation) -> None:
        """A process died: its sessions fall silent, and time out."""
        for client in self._clients:
            if client.incarnation is incarnation and not client.is_over:
                # The link breaks at once; the server notices only by the silence, and ends the
                # session then.
                client.die()

    # --- sessions ---------------------------------------------------------------------------

    def begin(self) -> int:
        """Begin a session and return its id."""
        # Never used again: a client with an old id finds that its session is over.
        self._session_id += 1
        # Sessions, too, are something that the servers agree on: each takes a zxid.
        self.tree.zxid += 1
        self._expiries[self._session_id] = None
        return self._session_id

    def is_alive(self, session_id: int) -> bool:
        """Whether the server still knows this session."""
        return session_id in self._expiries

    def end(self, session_id: int) -> None:
        """End a session, unless it has ended: its ephemeral nodes are deleted."""
        if session_id in self._expiries:
            self.stop_silence(session_id)
            # Before its nodes are deleted: of that, only sessions that live are sent events.
            del self._expiries[session_id]
            self.loop.trace.note(f"session {session_id:#x} ends")
            # Its client is sent nothing more, not even the events of the deletions that follow.
            for client in self.sessions():
                if client.session_id == session_id:
                    client.deaf_since_s = client.knows_until_s
            # Last: observers and watches are called within this.
            self.tree.delete_ephemerals(session_id)

    def count_silence(self, session_id: int, timeout_s: float) -> float:
        """Count from now on how long a session is silent. Returns how many seconds ago it was last
        heard of."""
        # Drawn in any case, so that a session that has ended shifts no later chance.
        quiet_s = self.random.random() * timeout_s / PINGS_PER_TIMEOUT
        # A silence that is counted already goes on: another reason for it must not prolong it.
        is_new = session_id in self._expiries and self._expiries[session_id] is None

        def time_out() -> None:
            self.end(session_id)
            # A paused process still has its connection: it finds it broken when it goes on.
            for client in self.sessions():
                if client.session_id == session_id and client.is_link_up:
                    client.cut_link()

        if is_new and not self.is_away:
            # The server counts from the last heartbeat, which came before the silence was noticed.
            self._expiries[session_id] = self.loop.after(
                timeout_s - quiet_s, time_out, context=self.context
            )
        return quiet_s

    def stop_silence(self, session_id: int) -> None:
        """The session was heard of: stop counting."""
        timer = self._expiries.get(session_id)
        if timer is not None:
            timer.cancel()
            self._expiries[session_id] = None

    # --- watches and time -------------------------------------------------------------------

    def delay_s(self) -> float:
        """How many seconds the next message takes, one way."""
        conditions = self.conditions
        spread_s = conditions.delay_s_max - conditions.delay_s_min
        return conditions.delay_s_min + spread_s * self.random.random()

    def _fire_watches(self, event: Event, path: str) -> None:
        """Spend the watches on a node that changed, and send their events."""
        # First the observers, which see each change at once, then the clients, by their links.
        for observe in self.observers:
            observe(event, path)
        self._send(self.leader.spend(event, path))
        # A lagging follower spends its own watches when it learns of the change.
        follower = self.follower
        if follower is not None:
            follower.behind.append(lambda: self._send(follower.spend(event, path)))

    def _send(self, spent: list[Watch]) -> None:
        for watch in spent:
            # The canary: the watch is spent, and its client never learns of the change.
            if self.is_deaf and self.random.randrange(CHANCES_PER_STRIKE) == 0:
                continue
            if not watch.is_spent:
                watch.session.send_event(watch)
