"""Brings changed policies to those they concern: reads them again, however long that takes.

What changed is only known to have changed: the follower asks for the new record and hands it on.
Topics that say something else themselves are handed the record of their namespace once more.
While ZooKeeper is away it keeps asking; when it is back, everything in use is looked at again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack
from random import Random

from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topic_names import NamespaceName, TopicName
from geminga_protocol.records.errors import MalformedRecord
from geminga_protocol.records.namespaces import Policies
from geminga_runtime.backoff import Backoff
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.1
RETRY_LIMIT_S = 5.0


Only = Collection[TopicName] | None
"""The topics that a change concerns; None: all of the namespace."""


async def _nothing(namespace: NamespaceName) -> None:
    del namespace


class PolicyFollower(Service):
    """Calls ``apply`` with the policies of a namespace that ``in_use`` names, when they changed.

    The policies count as read by then: only changes that come after a read are heard of. ``look``
    is awaited before all topics of a namespace are concerned: what they say themselves may stand
    where there was nothing before. It raises what is tried again.
    """

    def __init__(
        self,
        namespaces: Namespaces,
        random: Random,
        *,
        in_use: Callable[[], Iterable[NamespaceName]],
        apply: Callable[[NamespaceName, Policies, Only], None],
        look: Callable[[NamespaceName], Awaitable[None]] = _nothing,
    ) -> None:
        super().__init__()
        self._namespaces = namespaces
        self._in_use = in_use
        self._apply = apply
        self._look = look
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_LIMIT_S, random)
        # In the order of change: a set's would differ from run to run of a simulation.
        self._due: dict[NamespaceName, Only] = {}
        self._is_due = asyncio.Event()
        namespaces.follow(self._changed)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self.spawn(self._run(), name="follow policies")

    def _changed(self, namespace: NamespaceName | None) -> None:
        if namespace is None:
            self._due.update(dict.fromkeys(self._in_use()))
        else:
            self.topics_changed(namespace, None)
        if self._due:
            self._is_due.set()

    def topics_changed(self, namespace: NamespaceName, topics: Only) -> None:
        """These topics say something else, or, with None, any of the namespace may."""
        if namespace not in self._in_use():
            return
        before = self._due.get(namespace, ())
        self._due[namespace] = None if topics is None or before is None else {*before, *topics}
        self._is_due.set()

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            while self._due:
                namespace = next(iter(self._due))
                await self._bring(namespace, self._due.pop(namespace))

    async def _bring(self, namespace: NamespaceName, only: Only) -> None:
        try:
            policies = await self._namespaces.policies(namespace)
            if only is None:
                await self._look(namespace)
        except NamespaceNotFound:
            return  # its topics are being deleted
        except MalformedRecord as error:
            log.warning(
                "policies not readable, the former ones hold on",
                extra={"namespace": str(namespace), "error": str(error)},
            )
        except GemingaError as error:
            delay_s = self._backoff.next_s()
            log.info(
                "policies not read",
                extra={"namespace": str(namespace), "error": str(error), "retry_in_s": delay_s},
            )
            self.topics_changed(namespace, only)
            await asyncio.sleep(delay_s)
        else:
            self._backoff.reset()
            self._apply(namespace, policies, only)
