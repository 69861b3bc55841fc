"""Brings changed policies to the topics in use: reads them again, retrying until that succeeds.

A notification only says that policies changed, not how: the follower reads the new record of the
namespace and hands it on. Topics whose own policies changed are handed the record of their
namespace once more. While ZooKeeper is not reachable the follower retries; once it is back, all
namespaces in use are read again, as notifications may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack
from random import Random

from geminga_cluster.errors import NamespaceNotFound
from geminga_cluster.namespaces import Namespaces
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import Policies
from geminga_protocol.records.errors import MalformedRecord
from geminga_runtime.backoff import Backoff
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

# Failures are mostly those of a connection that comes back within seconds.
RETRY_FIRST_S = 0.1
RETRY_LIMIT_S = 5.0

# The topics that a change concerns; None: all of the namespace.
Only = Collection[TopicName] | None


class PolicyFollower(Service):
    """Calls ``apply`` with the policies of a namespace in use when they changed.

    ``in_use`` returns the namespaces whose topics are loaded. Their policies count as applied when
    they are loaded: only later changes are notified. ``refresh`` is awaited before a change of all
    topics of a namespace is applied, as topics of it may have policies of their own for the first
    time; what it raises is retried.
    """

    def __init__(
        self,
        namespaces: Namespaces,
        random: Random,
        *,
        in_use: Callable[[], Iterable[NamespaceName]],
        apply: Callable[[NamespaceName, Policies, Only], None],
        refresh: Callable[[NamespaceName], Awaitable[None]],
    ) -> None:
        super().__init__()
        self._namespaces = namespaces
        self._in_use = in_use
        self._apply = apply
        self._refresh = refresh
        # One for all namespaces: what fails is ZooKeeper, not a namespace.
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_LIMIT_S, random)
        # What is to be read again, in the order of change: a set's order would differ from run to
        # run of a simulation.
        self._due: dict[NamespaceName, Only] = {}
        self._is_due = asyncio.Event()
        # Followed from the construction on, before the first topic is loaded: no change is missed.
        namespaces.follow(self._changed)

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self.spawn(self._run(), name="follow policies")

    def _changed(self, namespace: NamespaceName | None) -> None:
        """Note that the policies of a namespace changed; None: those of all namespaces may have."""
        if namespace is None:
            # None for each of them: of all topics. Notifications for single ones may have been
            # missed, too. Replaces what was due of single topics: all includes them.
            self._due.update(dict.fromkeys(self._in_use()))
        else:
            self.topics_changed(namespace, None)
        # Where no namespace is in use nothing is due, and the task is not woken.
        if self._due:
            self._is_due.set()

    def topics_changed(self, namespace: NamespaceName, topics: Only) -> None:
        """Note that the own policies of these topics changed; None: of all topics they may have."""
        # Their policies are read when a topic of the namespace is loaded, so that nothing is
        # missed.
        if namespace not in self._in_use():
            return
        # None stands for all topics: a change that is due for all must not be narrowed to some. Two
        # changes before the next turn become one: the union of their topics.
        before = self._due.get(namespace, ())
        self._due[namespace] = None if topics is None or before is None else {*before, *topics}
        self._is_due.set()

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            # Cleared before they are taken: a change that comes from here on sets it again.
            self._is_due.clear()
            while self._due:
                # Taken out before it is read: a change that comes during the read is due again.
                namespace = next(iter(self._due))
                await self._bring(namespace, self._due.pop(namespace))

    async def _bring(self, namespace: NamespaceName, only: Only) -> None:
        """Read the policies of a namespace, and apply them to its topics, or to ``only`` some."""
        try:
            # From the record, never from the notification: two changes in a row may be notified as
            # one, and the newest record counts for both.
            policies = await self._namespaces.policies(namespace)
            if only is None:
                # Before ``apply``: topics would be handed a namespace's policies without their own.
                await self._refresh(namespace)
        except NamespaceNotFound:
            return  # its topics are being deleted
        except MalformedRecord as error:
            # Reading it again would not help; the next change of the record is notified. A topic
            # with its former limits is better than one without any.
            log.warning(
                "policies not readable, the former ones stay in force",
                extra={"namespace": str(namespace), "error": str(error)},
            )
        except GemingaError as error:
            delay_s = self._backoff.next_s()
            log.info(
                "policies not read",
                extra={"namespace": str(namespace), "error": str(error), "retry_in_s": delay_s},
            )
            # Due again, unless the namespace is not in use any more; a change that came meanwhile
            # is merged.
            self.topics_changed(namespace, only)
            # In the only task: while ZooKeeper does not answer, the other namespaces wait, too.
            await asyncio.sleep(delay_s)
        else:
            self._backoff.reset()
            # A change that came during the reads is due again: these policies hold until then.
            self._apply(namespace, policies, only)
