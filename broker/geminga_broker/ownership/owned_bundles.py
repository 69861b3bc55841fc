"""The bundles this broker owns, and how they are transferred: acquired, confirmed, unloaded, lost.

A bundle is owned through an ephemeral node whose value names the owner; its creation zxid is the
generation of the ownership. What happens with the session:

    CONNECTED   bundles are acquired; those given up before are taken back where no other has them
    DOUBTFUL    ZooKeeper does not answer: bundles are kept and served, none is acquired
    EXPIRED     every bundle is given up at once, as another broker may own it now

While the session is doubtful, another broker may own one of the bundles. Then it has fenced the
logs of its topics, so nothing that is published here is confirmed, and the first log that is found
fenced gives the bundle up (``suspect``). Which broker *should* own a bundle is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from weakref import WeakValueDictionary

from geminga_broker.errors import ServiceNotReady
from geminga_broker.ownership.addresses.address import Owner
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.errors import NotOwned
from geminga_cluster.claims import Claim, claim
from geminga_runtime.coordination import (
    Coordination,
    CoordinationError,
    NodeMissing,
    SessionState,
)
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Both run within the turn in which ``generations`` changes: they note what is to be done, and await
# nothing.
OnLost = Callable[[Bundle], None]
OnAcquired = Callable[[Bundle], None]
Successor = asyncio.Future[Owner | None]
"""The broker that owns a bundle next; None where that is not known."""
OnRelease = Callable[[Bundle, Successor], Awaitable[None]]
HandOn = Callable[[Bundle], Awaitable[Owner | None]]
"""Has another broker acquire a bundle, which none owns now; returns that broker, None for none."""

# How long a broker serves what it owns while ZooKeeper does not answer. Bookies keep the fences of
# deleted ledgers for longer (``gc_fences_kept_s``): where another broker has taken the topics over
# and has deleted their ledgers, the next entry that is written here is refused all the same.
DOUBT_S_MAX = 1_800.0
# Bundles claimed or confirmed side by side after a reconnection; keeps ZooKeeper's queue short.
RESUME_WIDTH = 32


class OwnedBundles(Service):
    """This broker's bundles. ``value`` is what their nodes hold; ``is_past(value)`` recognizes a
    node that an earlier run of this broker left behind; ``take_back(bundle)`` looks up a bundle
    that a lost session gave up, and acquires it if no other broker has."""

    def __init__(
        self,
        coordination: Coordination,
        value: bytes,
        *,
        is_past: Callable[[bytes], bool],
        take_back: Callable[[Bundle], Awaitable[object]],
    ) -> None:
        super().__init__()
        # The states of a bundle, each change of which is one statement without an ``await``:
        #
        #     not owned ──acquire──▶ owned ──_release──▶ releasing ──topics closed──▶ not owned
        #         ▲                    │                     │
        #         └────── _lose ───────┴─────────────────────┘
        #
        # Owned and releasing ones are keys of ``generations``; ``_releasing`` has the latter, too.
        self._coordination = coordination
        self._value = value
        self._is_past = is_past
        self._take_back = take_back
        # The bundles that are owned, with the creation zxids of their nodes: a later owner of a
        # bundle, whichever broker it is, has a higher one. Changed here only.
        self.generations: dict[Bundle, int] = {}
        # Of these, the ones whose topics are being closed.
        self._releasing: set[Bundle] = set()
        # Only while a task holds or awaits one: there may be a hundred thousand bundles.
        self._locks: WeakValueDictionary[Bundle, asyncio.Lock] = WeakValueDictionary()
        # Called when a bundle has become this broker's.
        self.on_acquired: list[OnAcquired] = []
        # Called when a bundle stops being this broker's: stop serving it at once.
        self.on_lost: list[OnLost] = []
        # Awaited before a bundle is handed on: close its topics in order. Their clients can wait
        # for the successor, which always gets a result.
        self.on_release: list[OnRelease] = []
        # No other broker can have what is owned here: ZooKeeper keeps the session, as far as known.
        # While it is False, another may: then it has fenced the logs, and nothing that is published
        # here is confirmed.
        self.is_certain = True
        # ZooKeeper answers now.
        self._is_connected = True
        # This broker is about to end: it keeps what it owns until that is handed on, and acquires
        # nothing any more.
        self.is_retired = False
        # How often the session ended or was in doubt. An answer to a request from before such an
        # event proves nothing: another broker may own the bundle since.
        self._losses = 0
        # To be looked up again when the session is CONNECTED: bundles that were given up, and those
        # whose node may have been made by a request without an answer. A dict keeps their order.
        self._given_up: dict[Bundle, None] = {}
        self._end_of_doubt: asyncio.TimerHandle | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        self._coordination.on_session(self._session_changed)
        stack.push_async_callback(self._delete_nodes)

    def serves(self, bundle: Bundle | None) -> bool:
        """Whether the bundle is owned, and not about to be handed on."""
        # Not ``bundle in self.generations`` alone: a topic that is loaded while its bundle is
        # released would still be open here when the next owner opens it.
        return bundle in self.generations and bundle not in self._releasing

    def lock(self, bundle: Bundle) -> asyncio.Lock:
        """The lock that guards what is known of the bundle's node while it is read or written."""
        # Two tasks that need it at once get the same object, as the first one holds a reference to
        # it while it waits or works. The object is gone when the last of them is done.
        return self._locks.setdefault(bundle, asyncio.Lock())

    # Acquiring

    def check_ready(self) -> None:
        """Raise ``ServiceNotReady`` where this broker cannot own anything now."""
        if self._is_closing or not self.is_certain:
            raise ServiceNotReady(
                "this broker acquires nothing now: it closes, or ZooKeeper does not answer"
            )

    async def acquire(self, bundle: Bundle) -> Claim:
        """Acquire the bundle, whose lock the caller holds, or find out which other broker owns it.

        Raises ``ServiceNotReady``, ``CoordinationError``.
        """
        # Again, although the caller has checked: it has awaited ZooKeeper since.
        self.check_ready()
        # Not in ``check_ready``: a retired broker still answers lookups of bundles that others own.
        if self.is_retired:
            raise ServiceNotReady("this broker ends, and acquires nothing any more")
        is_changed = False

        # The watch may fire before the bundle is among ``generations``, which ``_node_changed``
        # needs: so the event is remembered.
        def changed() -> None:
            nonlocal is_changed
            is_changed = True
            self._node_changed(bundle)

        try:
            while True:
                # Each round begins with what is known now. ``check_ready`` below ends the loop
                # while the doubt lasts, so there are as many rounds as times the session came back
                # in between.
                losses = self._losses
                node = await claim(
                    self._coordination,
                    bundle.path,
                    self._value,
                    is_stale=self._is_past,
                    on_change=changed,
                )
                if losses == self._losses:
                    break
                self.check_ready()  # the answer may be from before the doubt: ask again
        except (CoordinationError, ServiceNotReady):
            # The node may exist all the same, and leads all clients here as long as the session
            # lasts: it is checked when ZooKeeper answers again.
            self._given_up[bundle] = None
            raise
        # No ``await`` from the comparison above to here: the session has not been in doubt since
        # the answer, and the bundle is among ``generations`` when the next doubt gives up all of
        # them.
        if node.is_ours:
            # Before the callbacks: what they start, such as loading topics, asks whether the bundle
            # is served.
            self.generations[bundle] = node.stat.created_zxid
            log.info("bundle acquired", extra={"bundle": str(bundle)})
            for callback in self.on_acquired:
                callback(bundle)
            if is_changed:
                self._node_changed(bundle)  # the watch is used up: check, and set a new one
        return node

    def _node_changed(self, bundle: Bundle) -> None:
        # A watch may fire after the bundle was given up; then there is nothing to confirm. It also
        # fires when this broker deletes the node itself, and when the connection breaks.
        if bundle in self.generations:
            self.spawn(self._confirm(bundle), name=f"confirm {bundle}")

    async def _confirm(self, bundle: Bundle) -> None:
        """Check that an owned bundle's node is still this session's, and watch it again."""
        # With the lock: while the bundle is released or acquired, its node changes by this broker's
        # own doing, and that is no loss.
        async with self.lock(bundle):
            # It may have been given up while this task waited for the lock.
            if bundle not in self.generations:
                return
            try:
                _, stat = await self._coordination.get(
                    bundle.path, on_change=lambda: self._node_changed(bundle)
                )
            except NodeMissing:
                self._lose(bundle, "its node is gone")
                return
            except CoordinationError:
                # The bundle is kept. The watch is gone, and ``_resume`` confirms the bundle with a
                # new one when the session is CONNECTED again.
                return  # the session's own events decide what becomes of the bundle
            # The generation, too: the node may have been deleted and created again, and another
            # broker may have owned the bundle in between.
            present = stat.ephemeral_owner, stat.created_zxid
            if present != (self._coordination.session_id, self.generations.get(bundle)):
                self._lose(bundle, "its node is another than was acquired")

    # Giving up

    async def unload(self, bundle: Bundle, hand_on: HandOn) -> None:
        """Close the bundle's topics, release it, and ``hand_on`` to another broker. Raises
        ``NotOwned``.

        Clients are notified last, when they can go on at once: their pause is that of the
        hand-over.
        """
        # It gets a result in any case, None if this fails: sessions tell the clients of the
        # bundle's topics to reconnect once it has one (``send_when_moved``).
        successor: Successor = asyncio.get_running_loop().create_future()
        try:
            # The lock is held for as long as the topics take to close. Lookups of the bundle wait
            # for it, so that none is answered with a broker that is about to stop serving, or has
            # not begun to.
            async with self.lock(bundle):
                await self._release(bundle, successor)
            # Without the lock: a lookup that comes meanwhile may have the bundle acquired, too.
            # Where a client's lookup has another broker acquire it, ``hand_on`` finds that broker
            # as the owner and returns it.
            successor.set_result(await hand_on(bundle))
        finally:
            if not successor.done():
                successor.set_result(None)
        log.info("bundle unloaded", extra={"bundle": str(bundle)})

    async def _release(self, bundle: Bundle, successor: Successor) -> None:
        if bundle not in self.generations:
            raise NotOwned(str(bundle))
        # From here on ``serves`` denies the bundle, and lookups of it wait for the lock. Before the
        # callbacks: they close the topics that are loaded now, so none may be loaded after that.
        self._releasing.add(bundle)
        try:
            # All at once. An error of one ends the release: the bundle stays this broker's, is
            # served again, and its topics are loaded anew on demand.
            await asyncio.gather(*(release(bundle, successor) for release in self.on_release))
            # Where the session has ended meanwhile the entry is gone, and the node may be another
            # broker's. Else the entry goes before the node: once another broker can create the
            # node, this one must not take itself for the owner. If the request fails, the node
            # stays and leads lookups here, where ``Unowned.OWN_PAST`` has the bundle acquired anew.
            if self.generations.pop(bundle, None) is not None:
                await self._delete_node(bundle)
        finally:
            self._releasing.discard(bundle)

    async def split(
        self, bundle: Bundle, children: Sequence[Bundle], write: Callable[[], Awaitable[None]]
    ) -> None:
        """Own ``children`` in place of ``bundle``; ``write`` records the split.

        The children are owned before the ring shows them, and the bundle until it does: at any
        moment each topic is in a bundle of this broker's, and is served without a pause. Where it
        is not known whether the split was recorded, both are kept, and the ring decides which of
        them a topic is in. Raises ``NotOwned``, ``ServiceNotReady``, and what ``write`` raises.
        """
        async with self.lock(bundle):
            # A bundle that is being released cannot be split: its lock is held until it is gone.
            if not self.serves(bundle):
                raise NotOwned(str(bundle))
            try:
                # One after the other: a bundle is split into few pieces. Lookups cannot find the
                # children yet, as the ring does not show them, so their locks are free.
                for child in children:
                    async with self.lock(child):
                        if not (await self.acquire(child)).is_ours:
                            raise NotOwned(str(child))
                await write()
            except CoordinationError:
                raise  # the split may have been recorded: keep both
            except GemingaError:
                # The ring was not changed, so no topic is in the children: they are given up again.
                for child in children:
                    if self.generations.pop(child, None) is not None:
                        await self._delete_node(child)
                raise
            # After the ring shows the children: no lookup finds the bundle from here on. A crash
            # before this line loses the session, and all of these nodes with it.
            if self.generations.pop(bundle, None) is not None:
                await self._delete_node(bundle)
        log.info("bundle split", extra={"bundle": str(bundle), "into": len(children)})

    def suspect(self, bundle: Bundle) -> None:
        """Check the ownership of a bundle that another broker seems to have. Where ZooKeeper does
        not answer, give the bundle up, so that clients find the other broker; it is taken back when
        ZooKeeper answers and no other broker has it."""
        # While ZooKeeper answers, it alone decides: the check gives the bundle up only where its
        # node is another broker's, or gone.
        if self._is_connected:
            self._node_changed(bundle)
        elif bundle in self.generations:
            self._given_up[bundle] = None
            self._lose(bundle, "it was written to by another broker while ZooKeeper was away")

    def _lose(self, bundle: Bundle, reason: str) -> None:
        # Taken out first: the callbacks find the bundle not served, and a second loss of the same
        # bundle reports nothing.
        if self.generations.pop(bundle, None) is None:
            return
        log.warning("bundle lost", extra={"bundle": str(bundle), "reason": reason})
        for callback in self.on_lost:
            callback(bundle)

    async def _delete_node(self, bundle: Bundle) -> None:
        try:
            # Without a version, and yet no node of another owner is deleted: ZooKeeper refuses a
            # request of a session that has ended, and while the session lasts no other broker can
            # have the node.
            await self._coordination.delete(bundle.path)
        except NodeMissing:
            return

    async def _delete_nodes(self) -> None:
        """Delete all nodes on closing, so that successors need not wait until the session ends."""
        # Cleared before the requests: from here on nothing is served that another may acquire.
        bundles = list(self.generations)
        self.generations.clear()
        # Errors are no reason not to close: ZooKeeper deletes the nodes with the session.
        await asyncio.gather(
            *(self._delete_node(bundle) for bundle in bundles), return_exceptions=True
        )

    # The session

    def _session_changed(self, state: SessionState) -> None:
        self._is_connected = state is SessionState.CONNECTED
        # The timer runs only in DOUBTFUL: what comes next decides by itself.
        if self._end_of_doubt is not None:
            self._end_of_doubt.cancel()
            self._end_of_doubt = None
        # SUSPENDED comes first and changes nothing here: the session lives. DOUBTFUL follows before
        # ZooKeeper could end it, and only then EXPIRED or CONNECTED.
        if state is SessionState.DOUBTFUL:
            self.is_certain = False
            # Claims whose answers are on their way are void, though the session may turn out to be
            # alive.
            self._losses += 1
            loop = asyncio.get_running_loop()
            self._end_of_doubt = loop.call_later(DOUBT_S_MAX, self._give_up_all)
        elif state is SessionState.EXPIRED:
            self._give_up_all()
        elif state is SessionState.CONNECTED and not self._is_closing:
            # After EXPIRED this is a new session that owns nothing; after DOUBTFUL it is the old
            # one, whose nodes are still there. ``_resume`` handles both. Lookups may acquire
            # bundles before its task begins: they hold the bundles' locks, which the task waits
            # for.
            self.is_certain = True
            # Taken out as a whole: a bundle that cannot be taken back now is acquired by the next
            # lookup of it, unless ``acquire`` notes it again.
            given_up, self._given_up = self._given_up, {}
            self.spawn(self._resume(list(given_up)), name="resume ownership")

    def _give_up_all(self) -> None:
        """The session has ended, or was in doubt for ``DOUBT_S_MAX``."""
        self.is_certain = False
        self._losses += 1
        bundles = list(self.generations)
        # Each is looked up again when the session is back, without waiting for a client: its topics
        # may have work of their own, such as replication.
        self._given_up.update(dict.fromkeys(bundles))
        for bundle in bundles:
            self._lose(bundle, "the session with ZooKeeper expired")

    async def _resume(self, given_up: list[Bundle]) -> None:
        """Confirm what is still owned after a reconnection, take back what was given up."""
        width = asyncio.Semaphore(RESUME_WIDTH)

        async def take_back(bundle: Bundle) -> None:
            async with width:
                try:
                    await self._take_back(bundle)
                except GemingaError as error:
                    log.info(
                        "bundle not taken back", extra={"bundle": str(bundle), "why": str(error)}
                    )

        async def confirm(bundle: Bundle) -> None:
            async with width:
                await self._confirm(bundle)

        await asyncio.gather(*map(confirm, self.generations), *map(take_back, given_up))
