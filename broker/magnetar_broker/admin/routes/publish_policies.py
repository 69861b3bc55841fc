"""``/admin/v2/namespaces/…``: what a namespace says of publishing, read and changed one by one.

Here: deduplication, publish rate, number of producers, encryption. What they mean for topics is
``topics.publish_policies``.
"""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from magnetar_broker.admin.access import on_namespace
from magnetar_broker.admin.answers import Json, empty, json_record
from magnetar_broker.admin.errors import RestError
from magnetar_broker.admin.parameters import (
    NamespaceArg,
    ServicesArg,
    json_body,
    number_body,
    object_body,
)
from magnetar_broker.admin.routes.namespace_policies import change_policies, policies_of
from magnetar_broker.metadata.policy_rules import INT_MAX, LONG_MAX
from magnetar_protocol.records.json_records import of_document
from magnetar_protocol.records.namespaces import Policies, PublishRate
from magnetar_server.authorization import Action

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")

READ = [on_namespace(Action.READ)]
ADMINISTER = [on_namespace(Action.ADMINISTER)]


@router.get("/deduplication", dependencies=READ)
async def get_deduplication(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Whether messages that are sent again are stored once."""
    return _answer((await policies_of(services, namespace)).deduplication_enabled)


@router.post("/deduplication", dependencies=ADMINISTER)
async def set_deduplication(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Turn it on or off."""
    is_enabled = await _flag_body(request)
    return await change_policies(
        services, namespace, lambda policies: replace(policies, deduplication_enabled=is_enabled)
    )


@router.delete("/deduplication", dependencies=ADMINISTER)
async def delete_deduplication(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on as the broker's settings say."""
    return await change_policies(
        services, namespace, lambda policies: replace(policies, deduplication_enabled=None)
    )


@router.get("/deduplicationSnapshotInterval", dependencies=READ)
async def get_snapshot_interval(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """How often what was sent is written down, in seconds."""
    return _answer((await policies_of(services, namespace)).deduplication_snapshot_interval_s)


@router.post("/deduplicationSnapshotInterval", dependencies=ADMINISTER)
async def set_snapshot_interval(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Write it down so often; ``null`` takes the policy away."""
    interval_s = await number_body(request, "interval must be greater than or equal to 0")
    return await change_policies(
        services,
        namespace,
        lambda policies: replace(policies, deduplication_snapshot_interval_s=interval_s),
    )


@router.get("/maxProducersPerTopic", dependencies=READ)
async def get_producers_max(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """How many producers a topic may have."""
    return _answer((await policies_of(services, namespace)).producers_per_topic_max)


@router.post("/maxProducersPerTopic", dependencies=ADMINISTER)
async def set_producers_max(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Let a topic have so many; 0 is any number."""
    count = await number_body(request, "maxProducersPerTopic must be 0 or more")
    return await change_policies(
        services, namespace, lambda policies: replace(policies, producers_per_topic_max=count)
    )


@router.delete("/maxProducersPerTopic", dependencies=ADMINISTER)
async def delete_producers_max(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on as the broker's settings say."""
    return await change_policies(
        services, namespace, lambda policies: replace(policies, producers_per_topic_max=None)
    )


@router.get("/encryptionRequired", dependencies=READ)
async def get_encryption(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Whether producers must encrypt."""
    return _answer((await policies_of(services, namespace)).encryption_required)


@router.post("/encryptionRequired", dependencies=ADMINISTER)
async def set_encryption(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Have them encrypt, or not."""
    is_required = bool(await _flag_body(request))
    return await change_policies(
        services, namespace, lambda policies: replace(policies, encryption_required=is_required)
    )


@router.get("/publishRate", dependencies=READ)
async def get_publish_rate(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """How fast may be published to a topic."""
    rates = (await policies_of(services, namespace)).publish_max_message_rate
    rate = rates.get(services.cluster)
    return empty() if rate is None else json_record(rate)


@router.post("/publishRate", dependencies=ADMINISTER)
async def set_publish_rate(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Let it be so fast in this cluster."""
    rate = replace(of_document(PublishRate, await object_body(request) or {}), other={})
    if abs(rate.messages) > INT_MAX or abs(rate.size_bytes) > LONG_MAX:
        raise RestError(400, "A publish rate is too large")

    def change(policies: Policies) -> Policies:
        rates = {**policies.publish_max_message_rate, services.cluster: rate}
        return replace(policies, publish_max_message_rate=rates)

    return await change_policies(services, namespace, change)


@router.delete("/publishRate", dependencies=ADMINISTER)
async def delete_publish_rate(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on as the broker's settings say."""

    def change(policies: Policies) -> Policies:
        rates = policies.publish_max_message_rate
        left = {name: each for name, each in rates.items() if name != services.cluster}
        return replace(policies, publish_max_message_rate=left)

    return await change_policies(services, namespace, change)


def _answer(value: int | None) -> Response:
    return empty() if value is None else Json(value)


async def _flag_body(request: Request) -> bool | None:
    value = await json_body(request)
    if value is None or isinstance(value, bool):
        return value
    raise RestError(400, "The body should be true or false")
