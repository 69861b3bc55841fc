"""``/admin/v2/namespaces``: create, delete, list; unload and split; the policies as a whole.

The calls that read and change one policy each are made of the table in ``policies``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.namespace_deletion import (
    delete_with_topics,
    delete_without_topics,
    unmark,
)
from geminga_broker.admin.owner_routes import elsewhere, to_each_bundle
from geminga_broker.admin.parameters import ServicesArg
from geminga_broker.admin.peers import ask
from geminga_broker.admin.routes.namespace.replication import check_tenant_allows
from geminga_broker.admin.routes.topic.topics import names_answer, require_namespace, topics_of
from geminga_broker.admin.services import Services
from geminga_broker.ownership.addresses.address import LookupReason
from geminga_broker.ownership.assignment.bundles import (
    Bundle,
    BundleRing,
    check_boundaries,
    parse_boundary,
)
from geminga_broker.ownership.assignment.placement import candidate
from geminga_broker.ownership.assignment.split import RANGE_EQUALLY_DIVIDE, split_boundaries
from geminga_broker.ownership.clusters import entrance_of
from geminga_broker.ownership.errors import BundleNotSplit, NotOwned
from geminga_cluster.errors import NamespaceNotFound, TenantNotFound
from geminga_cluster.initialize import BUNDLES_DEFAULT
from geminga_protocol.pulsar.system_topics import is_system_topic
from geminga_protocol.pulsar.topics.topic_names import is_entity_name
from geminga_protocol.records.cluster.namespaces import BundlesData, Policies
from geminga_protocol.records.encodings.json_records import of_document, to_document
from geminga_server.authorization import Action
from geminga_server.rest.access import on_namespace, on_tenant
from geminga_server.rest.answers import Json, json_record, no_content
from geminga_server.rest.errors import RestError, ServedElsewhere
from geminga_server.rest.parameters import NamespaceArg, flag, json_body, object_body, path_value

router = APIRouter(prefix="/admin/v2/namespaces")

# The record of so many takes 53 KB of the 1 MB that a node of ZooKeeper may have, and the load
# report of a single broker has room for all of them (``REPORTED_BUNDLES_MAX``). Upstream has no
# limit, and hangs where the record is too large.
BUNDLES_MAX = 4096

# The default of isAllowAutoUpdateSchemaEnabled, shown where the namespace does not set it.
SCHEMA_UPDATE_DEFAULT = True

# The domains of topics by the query's ``mode``.
_MODES = {
    "PERSISTENT": ("persistent",),
    "NON_PERSISTENT": ("non-persistent",),
    "ALL": ("persistent", "non-persistent"),
}


@router.get("/{tenant}", dependencies=[on_tenant(Action.READ)])
async def list_namespaces(request: Request, services: ServicesArg) -> Response:
    """A tenant's namespaces."""
    tenant = path_value(request, "tenant")
    if not is_entity_name(tenant):
        raise RestError(412, "Tenant name is not valid")
    try:
        # From ZooKeeper: a tool lists what it has just created on another broker.
        names = await services.namespaces.names(tenant)
    except TenantNotFound:
        raise RestError(404, "Tenant not found") from None
    return Json([str(name) for name in names])


@router.get("/{tenant}/{namespace}", dependencies=[on_namespace(Action.READ)])
async def get_policies(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """A namespace's policies, with its present bundles."""
    await require_namespace(services, namespace)
    policies = await services.namespaces.policies(namespace)
    # Shown as they are in force: the bundles after all splits, and a default for what is unset. The
    # bundles are read where this broker has not served the namespace yet, as upstream does. A
    # namespace that is being deleted has none any more, and is shown with those of its creation.
    bundles = policies.bundles if policies.deleted else await services.namespaces.bundles(namespace)
    may_update = policies.is_allow_auto_update_schema
    return json_record(
        replace(
            policies,
            bundles=bundles,
            is_allow_auto_update_schema=SCHEMA_UPDATE_DEFAULT if may_update is None else may_update,
        )
    )


@router.put("/{tenant}/{namespace}", dependencies=[on_namespace(Action.ADMINISTER)])
async def create_namespace(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Create a namespace; the body may have any part of its policies, or nothing."""
    body = await object_body(request) or {}
    bundles = _bundles(body.pop("bundles", None))
    # What the body does not have is as in a record without policies. Members that the body has
    # replace those of the empty record; ``other`` would keep unknown ones for ever.
    given = of_document(Policies, to_document(Policies()) | body)
    policies = replace(given, bundles=bundles, other={})
    # Every namespace is in at least one cluster.
    clusters = policies.replication_clusters or (services.cluster,)
    await check_tenant_allows(services, namespace.tenant, clusters)
    # Local policies are not written yet: the first broker that serves the namespace copies the
    # bundles.
    await services.namespaces.create(namespace, replace(policies, replication_clusters=clusters))
    return no_content()


@router.delete("/{tenant}/{namespace}", dependencies=[on_namespace(Action.ADMINISTER)])
async def delete_namespace(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Delete a namespace without topics; with ``force`` also one with topics, where the broker's
    settings allow it. One that is in several clusters is refused: they have to be removed first."""
    is_forced = flag(request, "force")
    if is_forced and not services.config.force_deletes_namespaces:
        raise RestError(405, "Broker doesn't allow forced deletion of namespaces")
    try:
        # In several clusters each of the others would keep its topics. Where the namespace is in
        # one other cluster alone, that one deletes it.
        clusters = (await services.namespaces.policies(namespace)).replication_clusters
        if len(clusters) > 1:
            raise RestError(
                412,
                f"Cannot delete the global namespace {namespace}. There are still more than one "
                "replication clusters configured.",
            )
        for cluster in clusters:
            if cluster != services.cluster:
                entrance = entrance_of(await services.clusters.get(cluster))
                raise ServedElsewhere(elsewhere(request, entrance))
        if is_forced:
            await delete_with_topics(request, services, namespace)
            return no_content()
        await unmark(services, namespace)
        # Checked before anything is deleted, system topics included: a refusal changes nothing.
        ring = await services.ownership.rings.ring_of(namespace)
        lists = await asyncio.gather(
            *(topics_of(services, ring, domain) for domain in _MODES["ALL"]),
            *(services.partitioned_topics.names(namespace, domain) for domain in _MODES["ALL"]),
        )
        if any(not is_system_topic(topic) for topics in lists for topic in topics):
            raise RestError(409, "Cannot delete non empty namespace")
        await delete_without_topics(request, services, namespace)
    except NamespaceNotFound:
        raise RestError(404, f"Namespace {namespace} does not exist.") from None
    return no_content()


@router.get("/{tenant}/{namespace}/topics", dependencies=[on_namespace(Action.READ)])
async def list_topics(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The namespace's topics of the kinds that ``mode`` names, partitions one by one."""
    await require_namespace(services, namespace)
    domains = _MODES.get(request.query_params.get("mode", "PERSISTENT"))
    if domains is None:
        raise RestError(404, f"mode should be one of {', '.join(_MODES)}")
    # Of non-persistent topics each owner knows its own, so the list needs the bundles.
    ring = await services.ownership.rings.ring_of(namespace)
    lists = [await topics_of(services, ring, domain) for domain in domains]
    return names_answer(request, [topic for topics in lists for topic in topics])


@router.get("/{tenant}/{namespace}/bundles", dependencies=[on_namespace(Action.READ)])
async def get_bundles(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The boundaries of the namespace's bundles on the hash ring."""
    await require_namespace(services, namespace)
    return json_record(await services.namespaces.bundles(namespace))


@router.put("/{tenant}/{namespace}/unload", dependencies=[on_namespace(Action.ADMINISTER)])
async def unload_namespace(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Unload the namespace's bundles on all brokers: topics are closed, and clients look them up
    again."""
    # Raises for a namespace that does not exist.
    await services.namespaces.policies(namespace)
    ring = await services.ownership.rings.ring_of(namespace)
    # On all brokers; those that own none of them are not asked.
    await _unload(request, services, ring.bundles)
    return no_content()


@router.put("/{tenant}/{namespace}/{bundle}/unload", dependencies=[on_namespace(Action.ADMINISTER)])
async def unload_bundle(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Unload one bundle, which ``destinationBroker`` (an id, ``host:web port``) then acquires.
    Nothing happens where no broker owns it."""
    await services.namespaces.policies(namespace)
    ring = await services.ownership.rings.ring_of(namespace)
    bundle = bundle_in(ring, f"{namespace}/{path_value(request, 'bundle')}")
    destination = request.query_params.get("destinationBroker")
    if not destination:
        await _unload(request, services, [bundle])
        return no_content()
    await _unload_to(request, services, bundle, destination)
    return no_content()


async def _unload_to(
    request: Request, services: Services, bundle: Bundle, destination: str
) -> None:
    """Unload a bundle to a broker that is named.

    The leader does it, or the owner where there is no leader. Once the bundle has no owner, all
    brokers ask the leader for the next one: so it has to know the destination before that.

    A request with authority comes from a broker that has asked the leader, or is the leader. Raises
    ``RestError`` 404, ``NotOwned``, ``ServerUnreachable``.
    """
    view = await services.brokers.view()
    chosen = view.loads.get(destination)
    if chosen is None:
        raise RestError(404, f"Broker {destination} does not run")
    owner = await services.ownership.present_owner_of(bundle)
    there = candidate(chosen, LookupReason.OWNS)
    # The comparison is by URL, as an owner's record has no broker id.
    if owner is None or owner.rest_url(is_tls=False) == there.rest_url(is_tls=False):
        return  # no broker has it, or the destination itself
    # Who does what: the leader remembers the destination, then the owner unloads.
    is_leader, has_authority = services.brokers.election.is_leader, flag(request, "authoritative")
    leader = view.loads.get(view.leader_id or "")
    path = request.scope["path"]
    if is_leader:
        # Remembered for the next placement of this bundle.
        services.ownership.destine(bundle, destination)
    elif leader is not None and not has_authority:
        await ask(services.calls, request, candidate(leader, LookupReason.CHOSEN), path)
        return
    if owner.is_self:
        await services.ownership.unload(bundle, destination)
    elif is_leader:
        # Without the destination: an Apache broker redirects a request that has one to the leader,
        # and a broker of ours asks the leader for the next owner.
        await ask(services.calls, request, owner, path, query={})
    elif has_authority:
        # Not passed on a second time, so that brokers that disagree do not send it in circles.
        raise NotOwned(str(bundle))
    else:
        await ask(services.calls, request, owner, path)


@router.put("/{tenant}/{namespace}/{bundle}/split", dependencies=[on_namespace(Action.ADMINISTER)])
async def split_bundle(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Split a bundle as ``splitAlgorithmName`` says, by default into halves of the same size; the
    body may list the hashes at which to split. Its topics stay loaded; with ``unload`` the new
    bundles are unloaded then."""
    body = await json_body(request)
    if body is not None and not (
        isinstance(body, list) and all(type(each) is int for each in body)
    ):
        raise RestError(400, "The body should be a list of whole numbers")
    positions: list[int] = body or []
    await services.namespaces.policies(namespace)
    ring = await services.ownership.rings.ring_of(namespace)
    bundle = bundle_in(ring, f"{namespace}/{path_value(request, 'bundle')}")
    algorithm = request.query_params.get("splitAlgorithmName") or RANGE_EQUALLY_DIVIDE
    ownership = services.ownership

    async def split(bundle: Bundle) -> None:
        # Algorithms that split by the number of topics take their hashes. Runs on the broker that
        # owns the bundle, acquired if need be: a split needs an owner that takes both halves.
        topics = await services.persistent_topics.names(namespace)
        # Of the owner's own non-persistent topics: a bundle's are all loaded by its owner.
        topics += services.broker.topics.non_persistent_in(namespace)
        hashes = [topic.hash for topic in topics if bundle.covers(topic.hash)]
        cuts = split_boundaries(bundle, algorithm, hashes=hashes, positions=positions)
        # Each cut makes one bundle more. With the ring as it was read; a split that comes in
        # between is refused by ``cut_bundle``.
        if len(ring.bundles) + len(cuts) > BUNDLES_MAX:
            raise BundleNotSplit(str(bundle), f"its namespace would have more than {BUNDLES_MAX}")
        children = await ownership.split(bundle, cuts)
        # One after the other: the load manager, or the hash, places each of them anew.
        if flag(request, "unload"):
            for child in children:
                await ownership.unload(child)

    await to_each_bundle(request, services, [bundle], split, "split", acquiring=True)
    return no_content()


async def _unload(request: Request, services: Services, bundles: Iterable[Bundle]) -> None:
    async def unload(bundle: Bundle) -> None:
        with suppress(NotOwned):  # it was unloaded, or lost, meanwhile
            await services.ownership.unload(bundle)

    await to_each_bundle(request, services, bundles, unload, "unload", acquiring=False)


def bundle_in(ring: BundleRing, name: str) -> Bundle:
    """The bundle of this name, which includes its namespace. Raises ``RestError`` 412.

    The bundles may have been split since the caller read them: the refusal names the present one
    with the same lower boundary.
    """
    # By its boundaries alone: the ring is that of the namespace.
    bundle = ring.named(name.rpartition("/")[2])
    if bundle is not None:
        return bundle
    lower = name.partition("_")[0]
    for present in ring.bundles:
        if str(present).partition("_")[0] == lower:
            raise RestError(
                412,
                f"Invalid upper boundary for bundle {name}. Expected upper boundary of {present}",
            )
    raise RestError(412, f"Cannot find bundle {name} in the bundles list")


def _bundles(body: object) -> BundlesData:
    """The bundles of a new namespace: those given, or so many as asked for, or the default number.

    Raises ``RestError`` 400, ``InvalidBundles``.
    """
    asked = body if isinstance(body, dict) else {}
    count, boundaries = asked.get("numBundles"), asked.get("boundaries")
    # Boundaries count only together with their number.
    if not isinstance(count, int) or count <= 0:
        return BundlesData.equal(BUNDLES_DEFAULT)
    given = boundaries if isinstance(boundaries, list) else []
    if max(count, len(given)) > BUNDLES_MAX:
        raise RestError(
            400,
            "Invalid number of bundles. Number of bundles has to be in the range of "
            f"(0, {BUNDLES_MAX}].",
        )
    if not given:
        return BundlesData.equal(count)
    # Clients may list them in any order, and twice.
    ascending = sorted({parse_boundary(str(text)) for text in given})
    check_boundaries(ascending)
    # In the form in which brokers write and compare them.
    texts = tuple(f"0x{boundary:08x}" for boundary in ascending)
    return BundlesData(boundaries=texts, num_bundles=len(texts) - 1)
