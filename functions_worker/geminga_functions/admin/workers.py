"""``/admin/v2/worker``: the cluster of workers, and the requests that workers send each other."""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
from collections import defaultdict
from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_functions.admin.components import FacadeArg, NameArg
from geminga_functions.admin.facade import NO_LEADER, Facade
from geminga_functions.admin.reports import instance_stats
from geminga_functions.cluster.membership import Members, WorkerInfo
from geminga_functions.names import InstanceName
from geminga_functions.worker import INSTANCES_PATH, instances_json
from geminga_server.authorization import Action
from geminga_server.http.rest_calls import RestCall
from geminga_server.rest.access import on_cluster
from geminga_server.rest.answers import Json, no_content, text
from geminga_server.rest.errors import RestError, ServedElsewhere
from geminga_server.rest.parameters import integer_in_path

READS = [on_cluster(Action.READ)]
CHANGES = [on_cluster(Action.ADMINISTER)]
INSTANCE = INSTANCES_PATH + "/{tenant}/{namespace}/{name}/{instance}"
# How long a worker may let another one wait for an instance to settle.
WAIT_MAX_S = 60.0
# The unit of ``ru_maxrss``, in bytes.
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
# Draining and rebalancing need another worker that instances can move to.
WORKERS_MIN = 2
DRAIN_PATH = "/admin/v2/worker/drain"
# For the request to the worker, and then for its next heartbeat, which it sends at once.
DRAIN_TIMEOUT_S = 5.0
POLL_S = 0.05

router = APIRouter()


def worker_json(worker: WorkerInfo) -> dict[str, object]:
    """A worker as upstream's ``WorkerInfo``."""
    return {"workerId": worker.worker_id, "workerHostname": worker.hostname, "port": worker.port}


@router.get("/admin/v2/worker/cluster", dependencies=READS)
async def get_cluster(facade: FacadeArg) -> Response:
    """The workers of this cluster."""
    members = await facade.worker.membership.members()
    return Json([worker_json(each) for each in members.workers])


@router.get("/admin/v2/worker/cluster/leader", dependencies=READS)
async def get_leader(facade: FacadeArg) -> Response:
    """The worker that leads."""
    return Json(worker_json(await facade.leader()))


@router.get("/admin/v2/worker/cluster/leader/ready", dependencies=READS)
async def get_leader_ready(facade: FacadeArg) -> Response:
    """Answer "true" if there is a leader. Raises ``RestError`` 503 otherwise."""
    await facade.leader()
    return text("true")


@router.get("/admin/v2/worker/assignments", dependencies=READS)
async def get_assignments(facade: FacadeArg) -> Response:
    """The instances that are assigned to each worker."""
    instances: dict[str, list[str]] = defaultdict(list)
    for name, each in sorted(facade.worker.assignments.records.items()):
        instances[each.worker].append(str(name))
    return Json(instances)


@router.put("/admin/v2/worker/rebalance", dependencies=CHANGES)
async def rebalance(request: Request, facade: FacadeArg) -> Response:
    """Let the leader spread instances evenly over the workers, now."""
    # A redirect, not a call on the client's behalf: the client learns where the leader is.
    await _at_leader(request, facade)
    await _several_members(facade)
    # Every decision balances, if the settings say so: there is nothing more to ask for. The leader
    # looks once more, and finds nothing to do where it is balanced: the answer is the same.
    facade.worker.leadership.changed.set()
    return no_content()


@router.put("/admin/v2/worker/leader/drain", dependencies=CHANGES)
async def drain(request: Request, facade: FacadeArg) -> Response:
    """Move all instances away from a worker, which gets none again until it is restarted."""
    await _at_leader(request, facade)
    worker_id = request.query_params.get("workerId", "")
    worker = (await _several_members(facade)).find(worker_id)
    if worker is None:
        raise RestError(400, f"There is no worker {worker_id!r}")
    # The worker itself asks for no instances, with each heartbeat: the next leader knows it, too.
    await _drain(facade, worker)
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            while True:
                # Set by a heartbeat of the worker that asks for no instances.
                if worker_id in facade.worker.leadership.sessions.draining:
                    return no_content()
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise RestError(503, f"The leader does not hear from the worker {worker_id}") from None


async def _drain(facade: Facade, worker: WorkerInfo) -> None:
    """Let a worker ask for no instances, wherever it runs. Raises ``RestError``."""
    if worker == facade.worker.me:
        # As upstream: a second request must not look as if it had begun anything.
        if facade.worker.heartbeats.is_draining:
            raise RestError(409, f"The worker {worker.worker_id} is being drained already")
        # It sends a heartbeat at once, by which the leader learns of it.
        facade.worker.heartbeats.drain()
        return
    call = RestCall("PUT", f"{worker.url}{DRAIN_PATH}", timeout_s=DRAIN_TIMEOUT_S)
    answer = await facade.worker.calls.call(call)
    if not answer.is_success:
        raise RestError(answer.status, answer.reason)


@router.put(DRAIN_PATH, dependencies=CHANGES)
async def drain_this(facade: FacadeArg) -> Response:
    """Let the leader move all instances away from this worker."""
    # A single worker would drain its instances to nowhere, and no function would run.
    await _several_members(facade)
    await _drain(facade, facade.worker.me)
    return no_content()


@router.get(DRAIN_PATH, dependencies=READS)
async def get_drain_of_this(facade: FacadeArg) -> Response:
    """The progress of draining this worker: upstream's ``LongRunningProcessStatus``."""
    worker = facade.worker
    return _drain_status(facade, worker.me.worker_id, is_drained=worker.heartbeats.is_draining)


@router.get("/admin/v2/worker/leader/drain", dependencies=READS)
async def get_drain(request: Request, facade: FacadeArg) -> Response:
    """The progress of draining a worker: upstream's ``LongRunningProcessStatus``."""
    await _at_leader(request, facade)
    worker_id = request.query_params.get("workerId", "")
    # After a change of the leader it is false until the worker's next heartbeat.
    is_drained = worker_id in facade.worker.leadership.sessions.draining
    return _drain_status(facade, worker_id, is_drained=is_drained)


def _drain_status(facade: Facade, worker_id: str, *, is_drained: bool) -> Response:
    if not is_drained:
        reason = f"The worker {worker_id!r} was not drained"
        return Json({"status": "NOT_RUN", "lastError": reason})
    # The leader takes an assignment away only once its instance has ended.
    left = [each for each in facade.worker.assignments.records.values() if each.worker == worker_id]
    return Json({"status": "RUNNING" if left else "SUCCESS", "lastError": ""})


async def _several_members(facade: Facade) -> Members:
    """The workers. Raises ``RestError`` 400, as upstream does, if there is only one."""
    members = await facade.worker.membership.members()
    if len(members.workers) < WORKERS_MIN:
        raise RestError(400, f"Too few workers (need at least {WORKERS_MIN})")
    return members


async def _at_leader(request: Request, facade: FacadeArg) -> None:
    """Check that this worker leads. Raises ``ServedElsewhere``, a redirect to the leader."""
    if facade.worker.leadership.is_leader:
        return
    leader = await facade.leader()
    # Elected, but not leading yet: a redirect would lead back to this worker.
    if leader == facade.worker.me:
        raise RestError(503, NO_LEADER)
    query = f"?{request.url.query}" if request.url.query else ""
    raise ServedElsewhere(f"{leader.url}{request.url.path}{query}")


# --- numbers of this worker


@router.get("/admin/v2/worker-stats/functionsmetrics", dependencies=READS)
async def get_function_stats(facade: FacadeArg) -> Response:
    """The counts of each instance of this worker: upstream's ``WorkerFunctionInstanceStats``."""
    names = sorted(report.name for report in facade.worker.runtime.instances.reports())
    # At the same time: each is a request to another process or thread, with a time-out of its own.
    seen = await asyncio.gather(*[facade.seen_here(name, 0, 0) for name in names])
    return Json(
        [
            {"name": str(name), "metrics": instance_stats(each)}
            for name, each in zip(names, seen, strict=True)
        ]
    )


@router.get("/admin/v2/worker-stats/metrics", dependencies=READS)
async def get_metrics(facade: FacadeArg) -> Response:
    """What the worker's process uses, in the format of upstream's JVM metrics."""
    # Of the worker alone: instances in processes are its children, and are not counted.
    usage = resource.getrusage(resource.RUSAGE_SELF)
    metrics = {
        "process_cpu_seconds": usage.ru_utime + usage.ru_stime,
        "process_max_resident_bytes": usage.ru_maxrss * MAXRSS_BYTES,
        "process_threads": threading.active_count(),
        "instances": len(facade.worker.runtime.instances.reports()),
    }
    return Json([{"metrics": metrics, "dimensions": {"metric": "process_metrics"}}])


# --- requests of other workers


@router.get(INSTANCES_PATH, dependencies=READS, include_in_schema=False)
async def get_instances(facade: FacadeArg) -> Response:
    """The instances that may run on this worker, including those that are being stopped."""
    return Json(instances_json(facade.worker.present()))


@router.get(INSTANCE, dependencies=READS, include_in_schema=False)
async def get_instance(request: Request, facade: FacadeArg, name: NameArg) -> Response:
    """An instance as this worker sees it; with ``wait_s``, once that ``version`` has settled."""
    instance = InstanceName(name, integer_in_path(request, "instance"))
    try:
        version = int(request.query_params.get("version", "0"))
        # Bounded here: a request that waits occupies a connection of this worker.
        wait_s = min(float(request.query_params.get("wait_s", "0")), WAIT_MAX_S)
    except ValueError:
        raise RestError(400, "version and wait_s should be numbers") from None
    try:
        seen = await facade.seen_here(instance, version, wait_s)
    except TimeoutError:
        raise RestError(408, f"{instance} has not settled in {wait_s:g} s") from None
    # ``Seen.from_json`` reads it at the worker that asked.
    return Json(asdict(seen))


@router.post(INSTANCE + "/restart", dependencies=CHANGES, include_in_schema=False)
async def restart_instance(request: Request, facade: FacadeArg, name: NameArg) -> Response:
    """End an instance of this worker and start it anew."""
    instance = InstanceName(name, integer_in_path(request, "instance"))
    # The assignment may have moved since the sender has read it.
    if not await facade.worker.runtime.instances.restart(instance):
        raise RestError(404, f"{instance} does not run here")
    return no_content()
