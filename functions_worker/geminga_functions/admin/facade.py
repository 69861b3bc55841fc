"""What REST handlers share: changes, which the leader stores, and reports from other workers."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from uuid import uuid4
from weakref import WeakValueDictionary

from geminga_functions.admin.reports import Seen
from geminga_functions.cluster.membership import WorkerInfo
from geminga_functions.errors import ClusterUnknown, PackageError
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.packages.cache import BUILT_IN
from geminga_functions.worker import INSTANCES_PATH, Worker
from geminga_protocol.functions.functions_pb2 import FunctionMetaData
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall
from geminga_server.rest.errors import RestError

log = logging.getLogger(__name__)

# An instance that does not answer in time is shown without counts.
STATUS_TIMEOUT_S = 3.0
# How much longer a request to another worker may take than the wait that it asks for.
CALL_SLACK_S = 5.0
# The leader publishes the change and reads it; brokers may be moving the topic meanwhile.
LEADER_TIMEOUT_S = 15.0
# How often a worker checks whether it has read a change, or an assignment.
POLL_S = 0.05
# How long an answer waits for the first instance. An installation of requirements may take longer.
SETTLE_TIMEOUT_S = 30.0
LEADER_PATH = "/admin/v3/functions/leader"
NO_LEADER = "Leader not yet ready. Please retry again"


# The way of a change:
#
#   client -> any worker -> leader -> topic of functions -> every worker
#                ^                                              |
#                +---- answers once it has read the change -----+
@dataclass(frozen=True, slots=True, eq=False)
class Facade:
    """The functions and instances of the whole cluster, as ``worker`` reaches them."""

    worker: Worker
    # As the leader, by function: held from comparing a change with what is stored until the change
    # is read back. Otherwise two changes at a time would both be stored, and one of them lost.
    _changing: WeakValueDictionary[FunctionName, asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    def find(self, name: FunctionName) -> FunctionMetaData | None:
        """The current metadata of a function, None if it does not exist."""
        return self.worker.functions.records.get(name)

    # --- changes

    async def change(
        self, name: FunctionName, metadata: FunctionMetaData, *, is_removal: bool = False
    ) -> None:
        """Let the leader store the metadata of a function, or remove it.

        Returns once this worker has read the change. Raises ``RestError``, ``NotLeader``,
        ``ClientError``, ``ServerUnreachable``.
        """
        # No request to itself: the leader stores the change, and has read it when this returns.
        if self.worker.leadership.is_leader:
            await self.lead(name, metadata, is_removal=is_removal)
            return
        # By the broker's word, which may be older than the truth: the worker that is asked checks
        # itself whether it leads.
        leader = (await self.worker.membership.members()).leader
        # This worker's own consumer may be active before it has begun to lead.
        if leader is None or leader == self.worker.me:
            raise RestError(503, NO_LEADER)
        content_type, body = _form(metadata.SerializeToString(), is_removal=is_removal)
        call = RestCall(
            "PUT",
            f"{leader.url}{LEADER_PATH}/{name.url_path}",
            {"Content-Type": content_type},
            body,
            timeout_s=LEADER_TIMEOUT_S,
        )
        answer = await self.worker.calls.call(call)
        # The leader's refusal is passed on as it is: a 400 for a change that is out of date, a 503
        # while the lead changes.
        if not answer.is_success:
            raise RestError(answer.status, answer.reason)
        # The next answer of this worker must know of the change: wait until it has read it.
        try:
            async with asyncio.timeout(LEADER_TIMEOUT_S):
                while True:
                    found = self.find(name)
                    if is_removal and found is None:
                        return
                    # A higher version will do, too: a later change has replaced this one, which was
                    # stored before it.
                    if not is_removal and found is not None and found.version >= metadata.version:
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise RestError(503, f"The change of {name} is stored, but not read yet") from None

    async def lead(
        self, name: FunctionName, metadata: FunctionMetaData, *, is_removal: bool
    ) -> None:
        """Store a change as the leader. Raises ``RestError`` if another change came before it."""
        async with self._changing.setdefault(name, asyncio.Lock()):
            # The sender made the change from a version that it has read: a higher one may be stored
            # by now, or the function may be gone, or be another one of the same name. Each creation
            # has a time of its own, which all changes of what it created keep.
            found = self.find(name)
            is_out_of_date = (
                is_removal
                if found is None
                else metadata.version <= found.version or metadata.createTime != found.createTime
            )
            if is_out_of_date:
                raise RestError(
                    400,
                    f"{'Delete' if is_removal else 'Update'} request ignored because it is out of "
                    "date. Please try again.",
                )
            if is_removal:
                # It marks the function as removed; a compaction erases it an hour later.
                await self.worker.leadership.remove(name)
            else:
                await self.worker.leadership.put(name, metadata)

    async def discard(self, path: str) -> None:
        """Remove a package that no function uses any more. If that fails, it only takes space."""
        # Built-in connectors have no package that could be removed.
        if not path or path.startswith(BUILT_IN):
            return
        try:
            await self.worker.runtime.packages.remove(path)
        except (PackageError, ServerUnreachable) as error:
            log.warning("package is not removed", extra={"path": path, "reason": str(error)})

    # --- instances

    async def settled(self, name: FunctionName, version: int) -> Seen | None:
        """Wait until the first instance runs this version, has failed or is stopped.

        Returns None if that takes too long.
        """
        instance = InstanceName(name, 0)
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                while True:
                    assigned = self.worker.assignments.records.get(instance)
                    # An assignment of an older version is about to be replaced by the leader.
                    if assigned is not None and assigned.metadata.version >= version:
                        break
                    await asyncio.sleep(POLL_S)
                # Within the same time-out, so that both waits together take no longer.
                return await self.seen(instance, version, SETTLE_TIMEOUT_S)
        except TimeoutError:
            return None

    async def seen(self, instance: InstanceName, version: int = 0, wait_s: float = 0) -> Seen:
        """An instance as the worker that runs it sees it; with ``wait_s``, once it has settled.

        A worker that cannot be reached makes an error of the report. Raises ``TimeoutError`` if the
        instance does not settle within ``wait_s``.
        """
        assigned = self.worker.assignments.records.get(instance)
        if assigned is None:
            # No worker lives that could run it, or the leader is about to decide.
            return Seen(error="the leader has not scheduled it yet")
        worker_id = assigned.worker
        if worker_id == self.worker.me.worker_id:
            return await self.seen_here(instance, version, wait_s)
        query = f"?version={version}&wait_s={wait_s}"
        timeout_s = STATUS_TIMEOUT_S + wait_s + CALL_SLACK_S
        try:
            answer = await self._ask(worker_id, "GET", instance, query, timeout_s)
            # The other worker has waited as long as it was asked to.
            if answer.status == 408:
                raise TimeoutError
            value = answer.json()
            if answer.is_success and isinstance(value, dict):
                return Seen.from_json(value)
            reason = answer.reason
        except (ClusterUnknown, ServerUnreachable, KeyError, TypeError) as error:
            reason = str(error)
        return Seen(worker_id, error=f"the worker {worker_id} does not say: {reason}")

    async def seen_here(self, instance: InstanceName, version: int, wait_s: float) -> Seen:
        """As ``seen``, of an instance of this worker."""
        me, instances = self.worker.me.worker_id, self.worker.runtime.instances
        if wait_s:
            # An instance that this worker has not begun yet counts as not settled.
            report = await instances.settled(instance, version, wait_s)
        else:
            found = instances.report(instance)
            if found is None:
                return Seen(me, error="the worker has not begun to run it yet")
            report = found
        try:
            return Seen.of(me, report, await instances.status(instance, STATUS_TIMEOUT_S))
        except (ValueError, TypeError, KeyError) as error:
            log.warning("status cannot be read", extra={"instance": str(instance)}, exc_info=error)
            # The report is shown all the same: only the counts are missing.
            return Seen.of(me, report, None)

    async def restart(self, instance: InstanceName) -> None:
        """End an instance and start it anew, wherever it runs. Raises ``RestError``."""
        assigned = self.worker.assignments.records.get(instance)
        if assigned is None:
            raise RestError(400, f"{instance} has not been scheduled")
        if assigned.worker == self.worker.me.worker_id:
            await self.worker.runtime.instances.restart(instance)
            return
        answer = await self._ask(assigned.worker, "POST", instance, "/restart", LEADER_TIMEOUT_S)
        if not answer.is_success:
            raise RestError(answer.status, answer.reason)

    async def _ask(
        self, worker_id: str, method: str, instance: InstanceName, rest: str, timeout_s: float
    ) -> RestAnswer:
        """Send another worker a request about an instance of it; ``rest`` ends the path.

        Raises ``ClusterUnknown``, ``ServerUnreachable``.
        """
        # Asked each time: a worker that was started again may have another port.
        worker = (await self.worker.membership.members()).find(worker_id)
        if worker is None:
            raise ClusterUnknown(f"{worker_id} is gone")
        path = f"{INSTANCES_PATH}/{instance.function.url_path}/{instance.instance}"
        call = RestCall(method, f"{worker.url}{path}{rest}", timeout_s=timeout_s)
        return await self.worker.calls.call(call)

    async def leader(self) -> WorkerInfo:
        """The worker that leads. Raises ``RestError`` 503, ``ClusterUnknown``."""
        leader = (await self.worker.membership.members()).leader
        if leader is None:
            raise RestError(503, NO_LEADER)
        return leader


def _form(metadata: bytes, *, is_removal: bool) -> tuple[str, bytes]:
    """The content type and the body of the form that sends a change to the leader."""
    # Random: the metadata, which are binary, cannot contain it but by chance.
    boundary = uuid4().hex
    opening = f"--{boundary}\r\nContent-Disposition: form-data; name="
    body = (
        f'{opening}"functionMetaData"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode()
        + metadata
        + f'\r\n{opening}"delete"\r\n\r\n{str(is_removal).lower()}\r\n--{boundary}--\r\n'.encode()
    )
    return f"multipart/form-data; boundary={boundary}", body
