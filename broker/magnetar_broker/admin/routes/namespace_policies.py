"""``/admin/v2/namespaces/…``: the policies of a namespace that are read and changed one by one.

Here: persistence, retention, backlog quotas, compaction and delayed delivery. A policy that is not
set answers 200 with nothing; one that is set twice at the same time ends as one of the two. What
they mean for topics is ``topics.policies``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from magnetar_broker.admin.access import on_namespace
from magnetar_broker.admin.answers import Json, empty, json_record, no_content
from magnetar_broker.admin.errors import RestError
from magnetar_broker.admin.parameters import NamespaceArg, ServicesArg, json_body, object_body
from magnetar_broker.log.positions import INT64_MAX
from magnetar_broker.metadata.errors import NamespaceNotFound
from magnetar_broker.metadata.policy_rules import (
    DESTINATION_STORAGE,
    QUOTA_TYPES,
    check_delayed_delivery,
    check_persistence,
    check_quota_within_retention,
    check_retention,
    check_retention_covers_quota,
    checked_quota,
)
from magnetar_protocol.records.json_records import JsonRecord, of_document, to_document
from magnetar_protocol.records.namespaces import (
    BacklogQuota,
    DelayedDelivery,
    PersistencePolicies,
    Policies,
    RetentionPolicies,
)
from magnetar_server.authorization import Action

if TYPE_CHECKING:
    from collections.abc import Generator

    from magnetar_broker.admin.facade import Services
    from magnetar_protocol.pulsar.topic_names import NamespaceName

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")

READ = [on_namespace(Action.READ)]
ADMINISTER = [on_namespace(Action.ADMINISTER)]

# What calls about one policy say of a namespace that is not there; upstream has three texts.
MISSING = "Namespace does not exist"
MISSING_FOR_RETENTION = "Namespace policies does not exist"
MISSING_FOR_QUOTA = ""


@router.get("/persistence", dependencies=READ)
async def get_persistence(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """On how many bookies the namespace's ledgers are."""
    return _answer((await policies_of(services, namespace)).persistence)


@router.post("/persistence", dependencies=ADMINISTER)
async def set_persistence(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Have ledgers that are created from now on on so many bookies."""
    body = await object_body(request)
    if body is None:
        raise RestError(400, "persistence policies should not be null")
    persistence = replace(of_document(PersistencePolicies, body), other={})
    check_persistence(persistence)
    return await change_policies(
        services, namespace, lambda policies: replace(policies, persistence=persistence)
    )


@router.delete("/persistence", dependencies=ADMINISTER)
async def delete_persistence(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on as many as the broker's settings say."""
    return await change_policies(
        services, namespace, lambda policies: replace(policies, persistence=None)
    )


@router.get("/retention", dependencies=READ)
async def get_retention(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """How much is kept of what is acknowledged."""
    return _answer((await policies_of(services, namespace)).retention)


@router.post("/retention", dependencies=ADMINISTER)
async def set_retention(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Keep so much; no body takes the policy away."""
    body = await object_body(request)
    if body is None:
        return await _set_retention(services, namespace, None)
    retention = replace(of_document(RetentionPolicies, body), other={})
    check_retention(retention)
    return await _set_retention(services, namespace, retention)


@router.delete("/retention", dependencies=ADMINISTER)
async def delete_retention(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on keep as much as the broker's settings say; a body does not matter."""
    return await _set_retention(services, namespace, None)


@router.get("/backlogQuotaMap", dependencies=READ)
async def get_backlog_quotas(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """The namespace's backlog quotas, by type."""
    quotas = (await policies_of(services, namespace)).backlog_quota_map
    return Json({name: to_document(quota) for name, quota in quotas.items()})


@router.post("/backlogQuota", dependencies=ADMINISTER)
async def set_backlog_quota(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Limit what may be unacknowledged, by size or by age (``backlogQuotaType``)."""
    kind = _quota_type(request)
    body = await object_body(request) or {}
    quota = checked_quota(str(namespace), of_document(BacklogQuota, body))

    def change(policies: Policies) -> Policies:
        is_by_size = kind == DESTINATION_STORAGE
        check_quota_within_retention(quota if is_by_size else None, policies.retention)
        return replace(policies, backlog_quota_map={**policies.backlog_quota_map, kind: quota})

    return await change_policies(services, namespace, change, missing=MISSING_FOR_QUOTA)


@router.delete("/backlogQuota", dependencies=ADMINISTER)
async def delete_backlog_quota(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Take a limit away; the broker's own holds again."""
    kind = _quota_type(request)

    def change(policies: Policies) -> Policies:
        left = {name: each for name, each in policies.backlog_quota_map.items() if name != kind}
        return replace(policies, backlog_quota_map=left)

    return await change_policies(services, namespace, change, missing=MISSING_FOR_QUOTA)


@router.get("/compactionThreshold", dependencies=READ)
async def get_compaction_threshold(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """How many bytes of a topic are not compacted before it is compacted by itself."""
    threshold = (await policies_of(services, namespace)).compaction_threshold_bytes
    return empty() if threshold is None else Json(threshold)


@router.put("/compactionThreshold", dependencies=ADMINISTER)
async def set_compaction_threshold(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Have topics compacted by themselves; 0: never."""
    threshold = await json_body(request)
    if not isinstance(threshold, int) or isinstance(threshold, bool):
        raise RestError(400, "compactionThreshold should be a number of bytes")
    if not 0 <= threshold <= INT64_MAX:
        raise RestError(412, "compactionThreshold must be 0 or more")
    return await _set_compaction_threshold(services, namespace, threshold)


@router.delete("/compactionThreshold", dependencies=ADMINISTER)
async def delete_compaction_threshold(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on as the broker's settings say."""
    return await _set_compaction_threshold(services, namespace, None)


async def _set_compaction_threshold(
    services: Services, namespace: NamespaceName, threshold_bytes: int | None
) -> Response:
    return await change_policies(
        services,
        namespace,
        lambda policies: replace(policies, compaction_threshold_bytes=threshold_bytes),
    )


@router.get("/delayedDelivery", dependencies=READ)
async def get_delayed_delivery(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Whether messages may be delayed, and for how long."""
    return _answer((await policies_of(services, namespace)).delayed_delivery)


@router.post("/delayedDelivery", dependencies=ADMINISTER)
async def set_delayed_delivery(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Say it; no body takes the policy away."""
    body = await object_body(request)
    delayed = None
    if body is not None:
        delayed = replace(of_document(DelayedDelivery, body), other={})
        check_delayed_delivery(delayed)
    return await change_policies(
        services, namespace, lambda policies: replace(policies, delayed_delivery=delayed)
    )


@router.delete("/delayedDelivery", dependencies=ADMINISTER)
async def delete_delayed_delivery(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on what the broker's settings say."""
    return await change_policies(
        services, namespace, lambda policies: replace(policies, delayed_delivery=None)
    )


async def _set_retention(
    services: Services, namespace: NamespaceName, retention: RetentionPolicies | None
) -> Response:
    def change(policies: Policies) -> Policies:
        if retention is not None:
            check_retention_covers_quota(retention, policies.backlog_quota_map)
        return replace(policies, retention=retention)

    return await change_policies(services, namespace, change, missing=MISSING_FOR_RETENTION)


def _quota_type(request: Request) -> str:
    """Which quota the query names. Raises ``RestError`` 404 for one that there is not."""
    kind = request.query_params.get("backlogQuotaType", DESTINATION_STORAGE)
    if kind not in QUOTA_TYPES:
        raise RestError(404, f"backlogQuotaType should be one of {', '.join(QUOTA_TYPES)}")
    return kind


async def policies_of(services: Services, namespace: NamespaceName) -> Policies:
    """The namespace's policies. Raises ``RestError`` 404."""
    with _said_of_missing(MISSING):
        return await services.namespaces.policies(namespace)


async def change_policies(
    services: Services,
    namespace: NamespaceName,
    change: Callable[[Policies], Policies],
    *,
    missing: str = MISSING,
) -> Response:
    """Replace the namespace's policies by what ``change`` makes of them; the answer to that.

    Raises ``RestError`` 404 with ``missing`` where there is no such namespace."""
    with _said_of_missing(missing):
        await services.namespaces.update(namespace, change)
    return no_content()


@contextmanager
def _said_of_missing(reason: str) -> Generator[None, None, None]:
    """Say ``reason`` (404) where there is no such namespace."""
    try:
        yield
    except NamespaceNotFound:
        raise RestError(404, reason) from None


def _answer(policy: JsonRecord | None) -> Response:
    return empty() if policy is None else json_record(policy)
