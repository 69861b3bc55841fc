"""``/admin/v3/functions``, ``sources`` and ``sinks``: creates, changes, shows and stops them.

The three kinds have the same requests; ``kinds`` says in what they differ.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.convertors import register_url_convertor
from starlette.responses import Response

from geminga_functions.admin.facade import Facade
from geminga_functions.admin.forms import parts_of
from geminga_functions.admin.kinds import FUNCTIONS, SINKS, SOURCES, Kind
from geminga_functions.admin.reports import (
    component_status,
    function_stats,
    instance_stats,
)
from geminga_functions.admin.uploads import Upload
from geminga_functions.broker_calls import topic_url
from geminga_functions.connectors import BUILTIN
from geminga_functions.names import FunctionName, InstanceName
from geminga_functions.packages.cache import BUILT_IN
from geminga_protocol.functions.functions_pb2 import (
    EFFECTIVELY_ONCE,
    RUNNING,
    STOPPED,
    FunctionMetaData,
    FunctionState,
)
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action
from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestCall
from geminga_server.rest.access import on_cluster, on_namespace
from geminga_server.rest.answers import Json, no_content
from geminga_server.rest.errors import RestError
from geminga_server.rest.parameters import Word, flag, integer_in_path, path_value


class _Kind(Word):
    # Java's client uses the singular, too.
    regex = "functions|sources?|sinks?"


# Before any route uses it: a path of another kind then matches no route here, and is a 404.
register_url_convertor("component", _Kind())

# By the words that paths have for them.
KINDS = {
    **{each.path: each for each in (FUNCTIONS, SOURCES, SINKS)},
    "source": SOURCES,
    "sink": SINKS,
}
ROOT = "/admin/v3/{kind:component}/{tenant}/{namespace}"
ONE = ROOT + "/{name}"
READS = [on_namespace(Action.READ)]
CHANGES = [on_namespace(Action.ADMINISTER)]

router = APIRouter()


async def _facade(request: Request) -> Facade:
    facade: Facade = request.app.state.facade
    return facade


async def _name(request: Request) -> FunctionName:
    # An escaped slash in one of them makes a fourth part, which ``parse`` refuses.
    parts = (path_value(request, each) for each in ("tenant", "namespace", "name"))
    return FunctionName.parse("/".join(parts))


# Arguments of handlers, which FastAPI computes from the request by the functions above and below.
FacadeArg = Annotated[Facade, Depends(_facade)]
NameArg = Annotated[FunctionName, Depends(_name)]


async def _kind(request: Request) -> Kind:
    return KINDS[path_value(request, "kind")]


KindArg = Annotated[Kind, Depends(_kind)]


async def _found(facade: FacadeArg, kind: KindArg, name: NameArg) -> FunctionMetaData:
    """The component in the path. Raises ``RestError`` 404 if it does not exist."""
    metadata = facade.find(name)
    # Names are shared by all three kinds: a function is not found as a sink of its name.
    if metadata is None or metadata.functionDetails.componentType != kind.type_:
        raise RestError(404, f"{kind.word} {name.name} doesn't exist")
    return metadata


FoundArg = Annotated[FunctionMetaData, Depends(_found)]


async def _instances(
    request: Request, kind: KindArg, name: NameArg, found: FoundArg
) -> list[InstanceName]:
    """The instance in the path, or all of the component. Raises ``RestError`` 400."""
    count = found.functionDetails.parallelism
    if "instance" not in request.path_params:
        return [InstanceName(name, number) for number in range(count)]
    number = integer_in_path(request, "instance")
    if not 0 <= number < count:
        raise RestError(400, f"{kind.word} {name.name} doesn't have instance with id {number}")
    return [InstanceName(name, number)]


InstancesArg = Annotated[list[InstanceName], Depends(_instances)]


# --- create, update, delete


# What happens in which order, so that a refusal comes as early as it can:
#
#   1. names, and whether the component exists: before the body is read
#   2. the form, whose package is stored as it arrives
#   3. the config, which becomes details
#   4. the leader stores the details: from here on the change counts
#   5. the wait for the first instance, which tells the user what is wrong with the code
@router.post(ONE, dependencies=CHANGES)
async def create(request: Request, facade: FacadeArg, kind: KindArg, name: NameArg) -> Response:
    """Create a component from a form with its config and its package.

    The answer waits until the first instance runs; if the user's code fails, it is a 400 with the
    traceback. With ``wait=false`` the answer comes as soon as the component is stored.
    """
    # What needs nothing of the form is checked before the form, with its package, is read.
    name.check_new()
    await _check_namespace(facade, name)
    if facade.find(name) is not None:
        raise RestError(400, f"{kind.word} {name.name} already exists")
    # From here on a package may be stored, which an error, or a client that goes away, must not
    # leave behind.
    upload = Upload()
    try:
        await upload.take(request, facade, kind, name)
        metadata = _created(kind, name, upload, facade.worker.clock.wall_ms())
        await _check_deduplication(facade, metadata)
        await facade.change(name, metadata)
    except BaseException:
        await _discard_unused(facade, name, upload)
        raise
    return await _answer_once_settled(request, facade, kind, name, metadata.version)


@router.put(ONE, dependencies=CHANGES)
async def update(request: Request, facade: FacadeArg, kind: KindArg, name: NameArg) -> Response:
    """Update a component from a form with changes of its config, and perhaps a new package.

    The answer waits as that of ``create`` does. Raises ``RestError`` 400 if the component does not
    exist, as upstream does.
    """
    existing = facade.find(name)
    if existing is None or existing.functionDetails.componentType != kind.type_:
        raise RestError(400, f"{kind.word} {name.name} doesn't exist")
    upload = Upload()
    try:
        await upload.take(request, facade, kind, name)
        metadata = _changed(kind, name, upload, existing)
        await _check_deduplication(facade, metadata)
        # After this the instances go over to the new version; the old package is removed only
        # below.
        await facade.change(name, metadata)
    except BaseException:
        await _discard_unused(facade, name, upload)
        raise
    # Instances that still run the old version have the package on their disks.
    if upload.package_path:
        await facade.discard(existing.packageLocation.packagePath)
    return await _answer_once_settled(request, facade, kind, name, metadata.version)


def _created(kind: Kind, name: FunctionName, upload: Upload, created_ms: int) -> FunctionMetaData:
    # Only now: the config may be any part of the form, even the last.
    if upload.config is None:
        raise RestError(400, f"{kind.word} config is not provided")
    details = kind.details_of(name, upload.config)
    # The first version is the time. A component with the name of a deleted one then has higher
    # versions, and reports on the deleted one are not taken for reports on it.
    metadata = FunctionMetaData(functionDetails=details, createTime=created_ms, version=created_ms)
    _set_package(kind, metadata, upload)
    return metadata


def _set_package(kind: Kind, metadata: FunctionMetaData, upload: Upload) -> None:
    """Set the location of the package; for a built-in connector it names the connector instead.

    Raises ``RestError`` 400.
    """
    details, location = metadata.functionDetails, metadata.packageLocation
    # Either is empty in a function, and at most one of them is set in a connector.
    built_in = details.source.builtin or details.sink.builtin
    if built_in:
        if upload.package_path:
            raise RestError(400, f"{built_in} is built in and takes no package")
        # Checked here, not only by the instance: its error would come too late for the user.
        if built_in not in BUILTIN:
            raise RestError(400, f"Built-in {kind.word.lower()} is not available")
        location.packagePath = f"{BUILT_IN}{built_in}"
        location.originalFileName = ""
    elif upload.package_path:
        location.packagePath = upload.package_path
        location.originalFileName = upload.file_name
    # An update without a package keeps the one before, unless that was a built-in connector.
    elif not location.packagePath or location.packagePath.startswith(BUILT_IN):
        raise RestError(400, f"{kind.word} Package is not provided")


def _changed(
    kind: Kind, name: FunctionName, upload: Upload, existing: FunctionMetaData
) -> FunctionMetaData:
    before = kind.config_of(existing.functionDetails)
    details = kind.details_of(name, kind.updated(before, upload.config or {}))
    # Both are made from a config, in which all defaults are filled in.
    if details == kind.details_of(name, before) and not upload.package_path:
        raise RestError(400, "Update contains no change")
    metadata = _next_version(existing)
    metadata.functionDetails.CopyFrom(details)
    # As upstream does: after an update all instances run, even those that were stopped.
    metadata.instanceStates.clear()
    _set_package(kind, metadata, upload)
    return metadata


def _next_version(existing: FunctionMetaData) -> FunctionMetaData:
    metadata = FunctionMetaData()
    metadata.CopyFrom(existing)
    # The leader refuses a version that is not higher than the one that it has read: of two changes
    # of the same version the later one is refused, once the leader has read the first.
    metadata.version = existing.version + 1
    return metadata


async def _discard_unused(facade: Facade, name: FunctionName, upload: Upload) -> None:
    """Remove the package of a change that failed, unless the change has been stored after all.

    Whether it was is unknown if, for example, the connection to the leader was lost.
    """
    found = facade.find(name)
    if found is None or found.packageLocation.packagePath != upload.package_path:
        await facade.discard(upload.package_path)


async def _answer_once_settled(
    request: Request, facade: Facade, kind: Kind, name: FunctionName, version: int
) -> Response:
    # The change is stored: neither answer undoes it.
    if not flag(request, "wait", default=True):
        return no_content()
    seen = await facade.settled(name, version)
    # None: it takes too long, and the answer does not wait any longer.
    if seen is not None and seen.is_user_error and not seen.is_running:
        raise RestError(
            400,
            f"{kind.word} {name.name} is stored, but does not start; its status says more, an "
            f"update or a delete ends its attempts:\n{seen.failure}",
        )
    return no_content()


async def _check_namespace(facade: Facade, name: FunctionName) -> None:
    """Check that the namespace of a component exists. Raises ``RestError`` 400, and 503."""
    url = f"{facade.worker.web_url.rstrip('/')}/admin/v2/namespaces/{quote(name.tenant, safe='')}"
    try:
        answer = await facade.worker.calls.call(RestCall("GET", url))
    except ServerUnreachable as error:
        raise RestError(503, f"No broker says which namespaces there are: {error}") from None
    if answer.status == 404:
        raise RestError(400, "Tenant does not exist")
    namespaces = answer.json()
    if not answer.is_success or not isinstance(namespaces, list):
        raise RestError(503, f"A broker does not say which namespaces there are: {answer.reason}")
    # Upstream's check, with its text.
    if f"{name.tenant}/{name.namespace}" not in namespaces:
        raise RestError(400, "Namespace does not exist")


async def _check_deduplication(facade: Facade, metadata: FunctionMetaData) -> None:
    """Check that EFFECTIVELY_ONCE has an output topic that deduplicates. Raises ``RestError`` 400.

    If brokers do not answer the question, the check passes.
    """
    details = metadata.functionDetails
    if details.processingGuarantees != EFFECTIVELY_ONCE or not details.sink.topic:
        return
    topic = TopicName.parse(details.sink.topic)
    web = facade.worker.web_url.rstrip("/")
    # The policy of the topic overrides that of its namespace, and both the setting of brokers.
    for url in (
        topic_url(web, str(topic), "/deduplicationEnabled"),
        f"{web}/admin/v2/namespaces/{topic.namespace}/deduplication",
        f"{web}/admin/v2/brokers/configuration/runtime",
    ):
        try:
            answer = await facade.worker.calls.call(RestCall("GET", url))
            policy: Any = answer.json() if answer.is_success else None
        except (ServerUnreachable, ValueError):
            continue
        # The last URL answers with all settings of the broker, of which values are texts.
        if isinstance(policy, dict):
            policy = policy.get("brokerDeduplicationEnabled") == "true"
        # None: nothing is set on this level, and the next one decides.
        if policy is True:
            return
        if policy is False:
            raise RestError(
                400,
                f"EFFECTIVELY_ONCE needs deduplication in the namespace of the output, which is "
                f"off: geminga admin namespaces set-deduplication {topic.namespace} --enable",
            )


@router.delete(ONE, dependencies=CHANGES)
async def delete(facade: FacadeArg, name: NameArg, existing: FoundArg) -> Response:
    """Delete a component with its package; its instances end."""
    await facade.change(name, _next_version(existing), is_removal=True)
    # Last: a package without a function takes space, a function without its package cannot start.
    await facade.discard(existing.packageLocation.packagePath)
    return no_content()


# --- show


@router.get(ROOT, dependencies=READS)
async def list_all(request: Request, facade: FacadeArg, kind: KindArg) -> Response:
    """The names of the components of a kind in a namespace."""
    # Read from this worker's own copy of the log: the answer may be a moment behind the leader.
    place = path_value(request, "tenant"), path_value(request, "namespace")
    names = [
        name.name
        for name, metadata in facade.worker.functions.records.items()
        if (name.tenant, name.namespace) == place
        and metadata.functionDetails.componentType == kind.type_
    ]
    return Json(sorted(names))


@router.get(ONE, dependencies=READS)
async def get(kind: KindArg, found: FoundArg) -> Response:
    """The config of a component."""
    return Json(kind.config_of(found.functionDetails))


@router.get(ONE + "/status", dependencies=READS)
@router.get(ONE + "/{instance}/status", dependencies=READS)
async def get_status(
    request: Request, facade: FacadeArg, kind: KindArg, instances: InstancesArg
) -> Response:
    """The status of a component, or of one instance: what they do, and their last errors."""
    # At the same time: each may be a request to another worker, with a time-out of its own.
    seen = await asyncio.gather(*[facade.seen(each) for each in instances])
    if "instance" in request.path_params:
        return Json(kind.status_of(seen[0]))
    return Json(component_status(seen, kind.status_of))


@router.get(ONE + "/stats", dependencies=READS)
@router.get(ONE + "/{instance}/stats", dependencies=READS)
async def get_stats(request: Request, facade: FacadeArg, instances: InstancesArg) -> Response:
    """The counts of all instances of a component, or of one."""
    seen = await asyncio.gather(*[facade.seen(each) for each in instances])
    if "instance" in request.path_params:
        return Json(instance_stats(seen[0]))
    return Json(function_stats(seen))


# --- start, stop, restart


async def _set_states(
    facade: Facade,
    existing: FunctionMetaData,
    instances: list[InstanceName],
    state: FunctionState.ValueType,
) -> Response:
    metadata = _next_version(existing)
    # Instances without a state run; as upstream does, all states are written out.
    for number in range(existing.functionDetails.parallelism):
        metadata.instanceStates.setdefault(number, RUNNING)
    for each in instances:
        metadata.instanceStates[each.instance] = state
    await facade.change(instances[0].function, metadata)
    return no_content()


@router.post(ONE + "/stop", dependencies=CHANGES)
@router.post(ONE + "/{instance}/stop", dependencies=CHANGES)
async def stop(facade: FacadeArg, found: FoundArg, instances: InstancesArg) -> Response:
    """Stop all instances of a component, or one."""
    return await _set_states(facade, found, instances, STOPPED)


@router.post(ONE + "/start", dependencies=CHANGES)
@router.post(ONE + "/{instance}/start", dependencies=CHANGES)
async def start(facade: FacadeArg, found: FoundArg, instances: InstancesArg) -> Response:
    """Start the stopped instances of a component, or one that is stopped."""
    return await _set_states(facade, found, instances, RUNNING)


@router.post(ONE + "/restart", dependencies=CHANGES)
@router.post(ONE + "/{instance}/restart", dependencies=CHANGES)
async def restart(facade: FacadeArg, instances: InstancesArg) -> Response:
    """End all instances of a component, or one, and start them anew."""
    # One after the other: the others go on processing messages meanwhile.
    for each in instances:
        await facade.restart(each)
    return no_content()


@router.put(
    "/admin/v3/functions/leader/{tenant}/{namespace}/{name}",
    dependencies=[on_cluster(Action.ADMINISTER)],
    include_in_schema=False,
)
async def change_as_leader(request: Request, facade: FacadeArg, name: NameArg) -> Response:
    """Store a change that another worker has prepared; only the leader is sent such requests."""
    # The form is that of upstream's workers.
    metadata, is_removal = FunctionMetaData(), False
    async for part in parts_of(request.headers.get("content-type", ""), request.stream()):
        if part.name == "functionMetaData":
            metadata = FunctionMetaData.FromString(await part.read())
        elif part.name == "delete":
            is_removal = (await part.read()).lower() == b"true"
    # The path says which function the sender may change: the metadata must be of the same one.
    details = metadata.functionDetails
    if FunctionName(details.tenant, details.namespace, details.name) != name:
        raise RestError(400, "Corrupt Function MetaData")
    # Not ``change``: a worker that leads no more refuses, rather than send the request around.
    await facade.lead(name, metadata, is_removal=is_removal)
    return no_content()
