"""A functions worker: its part in the cluster of workers, and the instances that it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from random import Random
from typing import Protocol

from geminga import Client, ClientError, Message
from geminga_functions.broker_calls import topic_url
from geminga_functions.cleanup import Cleanup
from geminga_functions.cluster.assignment import Assigned
from geminga_functions.cluster.heartbeats import Heartbeats
from geminga_functions.cluster.keyed_log import REMOVED_KEPT_S, KeyedLog
from geminga_functions.cluster.leadership import SUBSCRIPTION, Leadership, WorkerInstances
from geminga_functions.cluster.membership import Membership, WorkerInfo
from geminga_functions.config import FunctionsWorkerConfig
from geminga_functions.errors import ClusterUnknown, InvalidName, NoLease, NotLeader
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.packages.store import PackageStore
from geminga_functions.runtime.assembly import Runtime
from geminga_functions.runtime.instances import Instances
from geminga_functions.runtime.reports import InstanceState
from geminga_functions.runtime.runner import WorkerIdentity
from geminga_functions.state.lanes import is_lane, lanes_of
from geminga_functions.state.open_states import OpenStates
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_runtime.clock import Clock
from geminga_runtime.service import Service
from geminga_server.config.service_urls import urls_in
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import BrokerCalls, RestCall, RestCalls

log = logging.getLogger(__name__)

# Where the leader asks a worker which instances run there: a path of ours, which upstream does not
# use.
INSTANCES_PATH = "/admin/x/instances"
# It bounds a step of the leader, which waits for all answers before it decides anything.
ASK_TIMEOUT_S = 2.0
# The leader waits at most a minute for the compaction of one topic, then continues with the next.
COMPACTION_POLL_S = 0.1
COMPACTION_POLLS_MAX = 600


class WorkerRuntime(AbstractAsyncContextManager[object], Protocol):
    """Runs the instances of a worker while it is open: a ``Runtime``, except in simulations."""

    # The packages of all workers.
    packages: PackageStore
    # The instances of this worker.
    instances: Instances


# The topics of a cluster of workers, all in one namespace, and which part uses them:
#
#   coordinate   heartbeats of all workers; its Failover subscription elects the leader
#   metadata     functions: written by the leader alone, read by every worker
#   assignments  which worker runs which instance, in which session: likewise
#   package-...  the code of functions (``packages.store``)
#   state-...    the lanes of their state (``state.lanes``)
class Worker(Service):
    """One worker: it takes part in the cluster of workers while it is open.

    ``client`` and ``calls`` reach the brokers. ``me`` identifies the worker to others. The worker
    opens and closes ``runtime``. ``copies`` is the folder for local copies of states that REST
    requests read; None keeps them in memory. The leader erases marks of removed functions after
    ``removed_kept_s`` seconds.
    """

    def __init__(
        self,
        config: FunctionsWorkerConfig,
        me: WorkerInfo,
        client: Client,
        calls: RestCalls,
        *,
        runtime: WorkerRuntime,
        clock: Clock,
        random: Random,
        copies: Path | None = None,
        removed_kept_s: float = REMOVED_KEPT_S,
    ) -> None:
        super().__init__()
        self.config = config
        self.me = me
        self.client = client
        self.runtime = runtime
        self.calls = calls = broker_calls(calls, config)
        self.clock = clock
        self._removed_kept_s = removed_kept_s
        coordination = config.topic(config.cluster_coordination_topic_name)
        web_url = self.web_url = urls_in(config.pulsar_web_service_url)[0]
        # What should run, and what runs where: every worker reads both from their beginning.
        self.functions = function_log(client, config)
        assignments = config.topic(config.function_assignment_topic_name)
        self.assignments = KeyedLog(client, assignments, InstanceName.parse, Assigned.decode)
        self.heartbeats = Heartbeats(
            client,
            coordination,
            me.worker_id,
            lease_s=config.lease_s,
            clock=clock,
            # Called for each stored heartbeat: without them the instances end by themselves.
            on_lease=self._extend_lease,
            # Never the same twice, not even after a restart of the worker: what was assigned to an
            # earlier session must not run in this one.
            make_session=lambda: f"{random.getrandbits(128):032x}",
        )
        stats_url = topic_url(web_url, coordination, "/stats")
        self.membership = Membership(calls, stats_url, SUBSCRIPTION)
        self.leadership = Leadership(
            client,
            coordination,
            me,
            self.functions,
            self.assignments,
            # The leader asks this worker, too, and then needs no request.
            ask=self._ask,
            # Of the last heartbeat that was stored, not of one that is on its way.
            own_session=lambda: self._session,
            lease_s=config.lease_s,
            balances=config.rebalances,
            clock=clock,
        )
        self.states = OpenStates(client, config.pulsar_functions_namespace, copies, clock)
        # The session that this worker's instances were assigned to. Empty before the first
        # heartbeat is stored, when there is no lease either.
        self._session = ""

    async def _open(self, stack: AsyncExitStack) -> None:
        # What opens last closes first. So the worker first stops to lead, then its instances end,
        # then its heartbeats, and then it reports that it has left, which must not be said earlier:
        # the leader gives its instances to others at once.
        await stack.enter_async_context(self.functions)
        await stack.enter_async_context(self.assignments)
        # Before the first heartbeat: no assignment to this session is missed.
        self.assignments.listeners.append(self._assign)
        # The runtime alone does not close in that order: it opens before the first heartbeat, and
        # closes before the last one. While it waits for the lock of its directory there is no lease
        # yet: instances would start beside those of the worker that has the lock.
        async with AsyncExitStack() as runtime:
            await runtime.enter_async_context(self.runtime)
            stack.push_async_callback(self.heartbeats.leave)
            await stack.enter_async_context(self.heartbeats)
            stack.push_async_exit(runtime.pop_all())
        # After the runtime: as a leader it asks its own worker, too, what runs here.
        await stack.enter_async_context(self.leadership)
        cleanup = Cleanup(
            self.functions,
            lambda: self.leadership.is_leader,
            self.calls,
            self.web_url,
            self._state_topics,
        )
        await stack.enter_async_context(cleanup)
        await stack.enter_async_context(self.states)
        self.functions.listeners.append(self._close_states)
        if self.config.topic_compaction_s:
            self.spawn_every(self.config.topic_compaction_s, self._compact, name="compaction")

    def _close_states(self) -> None:
        # Spawned, since a listener of the log cannot wait.
        if self.states.open.keys() - self.functions.records.keys():
            work = self.states.close_but(self.functions.records)
            self.spawn(work, name="states of deleted functions")

    async def _state_topics(self, name: FunctionName) -> Iterable[str]:
        namespace = self.config.pulsar_functions_namespace
        return (await lanes_of(self.client, namespace, name)).values()

    async def check_health(self) -> None:
        """Raise ``NoLease`` if no broker stores heartbeats: then no instance runs here."""
        if not self.runtime.instances.lease.is_set():
            raise NoLease

    # --- what runs here

    def _extend_lease(self, session: str, until_s: float) -> None:
        if session != self._session:
            # What was assigned to the former session may run on another worker by now.
            self._session = session
            self._assign()
        # After ``_assign``: with the new lease, instances of the former session would begin to run
        # again.
        self.runtime.instances.extend_lease(until_s)

    def _assign(self) -> None:
        me, session = self.me.worker_id, self._session
        # All of the worker's assignments each time: ``assign`` finds what has changed.
        mine = {
            name: each.metadata
            for name, each in self.assignments.records.items()
            if each.worker == me and each.session == session
        }
        self.runtime.instances.assign(mine)

    def present(self) -> WorkerInstances:
        """The instances that may still run here, and how far the assignments have been read."""
        reports = self.runtime.instances.reports()
        # An instance that failed counts as running: it may be started again at any moment. There is
        # no wait between reports and position: what was assigned up to the position is among the
        # reports, since ``_assign`` is called as the log moves.
        running = (each.name for each in reports if each.state is not InstanceState.STOPPED)
        return WorkerInstances(self.assignments.position, frozenset(running))

    # --- other workers

    async def _ask(self, worker_id: str) -> WorkerInstances | None:
        if worker_id == self.me.worker_id:
            return self.present()
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                worker = (await self.membership.members()).find(worker_id)
                # Without a consumer it is no member: the end of its lease says when its instances
                # have ended.
                if worker is None:
                    return None
                answer = await self.calls.call(RestCall("GET", f"{worker.url}{INSTANCES_PATH}"))
                return parse_instances(answer.json()) if answer.is_success else None
        except (ClusterUnknown, ServerUnreachable, TimeoutError, ValueError, InvalidName) as error:
            # The leader asks again, or waits for the end of the worker's lease.
            extra = {"worker": worker_id, "reason": str(error)}
            log.warning("worker does not say what runs there", extra=extra)
            return None

    async def _compact(self) -> None:
        """Have the topics of functions, assignments and state compacted, if this worker leads."""
        try:
            # First, so that this compaction erases what was dropped.
            kept_ms = int(self._removed_kept_s * 1000)
            await self.leadership.drop_removed(self.clock.wall_ms() - kept_ms)
        except NotLeader:
            return
        except ClientError as error:
            log.warning("what was removed is not dropped", extra={"reason": str(error)})
            return
        try:
            topics = await self.client.topics(self.config.pulsar_functions_namespace)
        except ClientError as error:
            log.warning("lanes of state are not compacted", extra={"reason": str(error)})
            topics = []
        # There may be thousands of lanes. They are compacted one after the other, so that brokers
        # have time for other work.
        for topic in (self.functions.topic, self.assignments.topic, *filter(is_lane, topics)):
            # The next leader compacts all of them; two at a time would do the work twice.
            if not self.leadership.is_leader:
                return
            try:
                reason = await self._compact_topic(topic)
            except ServerUnreachable as error:
                reason = str(error)
            if reason:
                log.warning("topic is not compacted", extra={"topic": topic, "reason": reason})

    async def _compact_topic(self, topic: str) -> str:
        """Have a broker compact a topic, and wait for the end of it, within bounds.

        Returns why the broker refuses; empty if it does not. Raises ``ServerUnreachable``.
        """
        url = topic_url(self.web_url, topic, "/compaction")
        answer = await self.calls.call(RestCall("PUT", url))
        if not answer.is_success:
            return answer.reason
        for _ in range(COMPACTION_POLLS_MAX):
            answer = await self.calls.call(RestCall("GET", url))
            # A broker that does not answer any more may have given the topic away: it is left as it
            # is.
            match answer.json() if answer.is_success else None:
                case {"status": "RUNNING"}:
                    await asyncio.sleep(COMPACTION_POLL_S)
                case _:
                    break
        return ""


def broker_calls(calls: RestCalls, config: FunctionsWorkerConfig) -> BrokerCalls:
    """``calls`` that try all brokers of the settings for a request to the first of them."""
    return BrokerCalls(calls, urls_in(config.pulsar_web_service_url))


def runtime_of(
    config: FunctionsWorkerConfig,
    me: WorkerInfo,
    client: Client,
    calls: RestCalls,
    *,
    environment: Mapping[str, str],
    clock: Clock,
    random: Random,
) -> Runtime:
    """The runtime of the worker ``me``; its instances get the variables of ``environment``."""
    namespace = config.pulsar_functions_namespace
    return Runtime(
        WorkerIdentity(
            me.worker_id,
            config.pulsar_functions_cluster,
            config.service_url,
            urls_in(config.pulsar_web_service_url)[0],
            namespace,
            config.broker_tls.client_tls,
        ),
        config.runtime,
        client,
        broker_calls(calls, config),
        namespace=namespace,
        environment=environment,
        clock=clock,
        random=random,
    )


def instances_json(instances: WorkerInstances) -> dict[str, object]:
    """The answer at ``INSTANCES_PATH``."""
    return {
        "position": list(instances.position),
        "present": sorted(str(name) for name in instances.present),
    }


def parse_instances(value: object) -> WorkerInstances:
    """Parse what ``instances_json`` made. Raises ``ValueError`` and ``InvalidName``."""
    match value:
        case {"position": [int(ledger), int(entry)], "present": [*names]}:
            # Written by another worker, perhaps of another version: each name is checked.
            present = frozenset(InstanceName.parse(str(name)) for name in names)
            return WorkerInstances((ledger, entry), present)
        case _:
            raise ValueError(f"no answer of a worker: {value!r}")


def function_log(
    client: Client, config: FunctionsWorkerConfig
) -> KeyedLog[FunctionName, FunctionMetaData]:
    """The topic of functions, to be opened."""

    def decode(_: FunctionName, message: Message[bytes]) -> FunctionMetaData:
        return FunctionMetaData.FromString(message.data)

    topic = config.topic(config.function_metadata_topic_name)
    return KeyedLog(client, topic, FunctionName.parse, decode)
