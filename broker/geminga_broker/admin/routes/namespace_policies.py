"""``/admin/v2/namespaces/…``: the policies of a namespace that are read and changed one by one.

Here: persistence, retention, backlog quotas, compaction and delayed delivery. What they mean for
topics is ``policies``.
"""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.answers import Json
from geminga_broker.admin.errors import RestError
from geminga_broker.admin.facade import Services
from geminga_broker.admin.one_policy import (
    ADMINISTER,
    PREFIX,
    READ,
    answer_of,
    change_policies,
    policies_of,
    record,
    serve_policy,
)
from geminga_broker.admin.parameters import NamespaceArg, ServicesArg, json_body, object_body
from geminga_broker.policies.backlog import (
    DESTINATION_STORAGE,
    QUOTA_TYPES,
    check_quota_within_retention,
    check_retention_covers_quota,
    checked_quota,
)
from geminga_broker.policies.delayed import check_delayed_delivery
from geminga_broker.policies.levels import LONG_MAX
from geminga_broker.policies.storage import check_persistence, check_retention
from geminga_protocol.pulsar.topic_names import NamespaceName
from geminga_protocol.records.json_records import of_document, to_document
from geminga_protocol.records.namespaces import (
    BacklogQuota,
    DelayedDelivery,
    PersistencePolicies,
    Policies,
    RetentionPolicies,
)

# What calls about these policies say of a namespace that is not there.
MISSING_FOR_RETENTION = "Namespace policies does not exist"
MISSING_FOR_QUOTA = ""

router = APIRouter(prefix=PREFIX)

_retention = record(RetentionPolicies, check_retention)


async def _threshold(request: Request) -> int:
    threshold = await json_body(request)
    if not isinstance(threshold, int) or isinstance(threshold, bool):
        raise RestError(400, "compactionThreshold should be a number of bytes")
    if not 0 <= threshold <= LONG_MAX:
        raise RestError(412, "compactionThreshold must be 0 or more")
    return threshold


serve_policy(
    router,
    "/persistence",
    "persistence",
    record(
        PersistencePolicies, check_persistence, missing="persistence policies should not be null"
    ),
)
serve_policy(router, "/compactionThreshold", "compaction_threshold_bytes", _threshold, method="PUT")
serve_policy(
    router, "/delayedDelivery", "delayed_delivery", record(DelayedDelivery, check_delayed_delivery)
)


@router.get("/retention", dependencies=READ)
async def get_retention(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """How much is kept of what is acknowledged."""
    return answer_of((await policies_of(services, namespace)).retention)


@router.post("/retention", dependencies=ADMINISTER)
async def set_retention(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Keep so much; no body takes the policy away."""
    return await _set_retention(services, namespace, await _retention(request))


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
