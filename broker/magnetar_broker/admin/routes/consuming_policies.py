"""``/admin/v2/namespaces/…``: what a namespace says of consuming, read and changed one by one.

Here: how long messages live, how many may consume and hold what, how fast they are served and may
subscribe, which types of subscription there are and whether using one makes it. What the values
mean for topics is in ``topics.policies``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

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
from magnetar_broker.metadata.policy_rules import check_dispatch_rate, check_subscribe_rate
from magnetar_broker.subscriptions.subscription_type import SubscriptionType
from magnetar_protocol.records.json_records import JsonRecord, of_document
from magnetar_protocol.records.namespaces import (
    AutoSubscriptionCreation,
    DispatchRate,
    Policies,
    SubscribeRate,
)
from magnetar_server.authorization import Action

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")

READ = [on_namespace(Action.READ)]
ADMINISTER = [on_namespace(Action.ADMINISTER)]


# Numbers


class Number(NamedTuple):
    """A policy that is a number of 0 and more: its name in the path, its field in ``Policies``, and
    what somebody is told who gives a lower one."""

    path: str
    field: str
    refusal: str


def _limit(path: str, field: str) -> Number:
    return Number(path, field, f"{path} must be 0 or more")


NUMBERS = (
    Number("messageTTL", "message_ttl_s", "Invalid value for message TTL, message TTL must >= 0"),
    _limit("maxConsumersPerTopic", "consumers_per_topic_max"),
    _limit("maxConsumersPerSubscription", "consumers_per_subscription_max"),
    _limit("maxSubscriptionsPerTopic", "subscriptions_per_topic_max"),
    _limit("maxUnackedMessagesPerConsumer", "unacked_per_consumer_max"),
    _limit("maxUnackedMessagesPerSubscription", "unacked_per_subscription_max"),
)


def _serve_number(number: Number) -> None:
    """Three routes: what holds, what shall hold, and that the broker's settings shall."""
    path = f"/{number.path}"

    @router.get(path, dependencies=READ, name=f"get {number.path}")
    async def get(namespace: NamespaceArg, services: ServicesArg) -> Response:
        value = getattr(await policies_of(services, namespace), number.field)
        return empty() if value is None else Json(value)

    @router.post(path, dependencies=ADMINISTER, name=f"set {number.path}")
    async def put(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
        changed = {number.field: await number_body(request, number.refusal)}
        return await change_policies(services, namespace, _setting(changed))

    @router.delete(path, dependencies=ADMINISTER, name=f"delete {number.path}")
    async def delete(namespace: NamespaceArg, services: ServicesArg) -> Response:
        return await change_policies(services, namespace, _setting({number.field: None}))


def _setting(changed: Mapping[str, object]) -> Callable[[Policies], Policies]:
    return lambda policies: replace(policies, **cast(dict[str, Any], changed))


for _number in NUMBERS:
    _serve_number(_number)


# Rates, which a namespace has one of for each cluster


class Rate(NamedTuple):
    """A policy that is a rate: its name in the path, its fields in ``Policies`` (the first is read,
    all are written), its record, and what raises ``InvalidPolicy`` for one that is none."""

    path: str
    fields: tuple[str, ...]
    record: type[JsonRecord]
    check: Callable[[Any], None]


RATES = (
    Rate(
        "dispatchRate",
        # The second is the first's old name; upstream writes both.
        ("topic_dispatch_rate", "cluster_dispatch_rate"),
        DispatchRate,
        check_dispatch_rate,
    ),
    Rate(
        "subscriptionDispatchRate",
        ("subscription_dispatch_rate",),
        DispatchRate,
        check_dispatch_rate,
    ),
    Rate("subscribeRate", ("cluster_subscribe_rate",), SubscribeRate, check_subscribe_rate),
)


def _serve_rate(rate: Rate) -> None:
    path = f"/{rate.path}"

    @router.get(path, dependencies=READ, name=f"get {rate.path}")
    async def get(namespace: NamespaceArg, services: ServicesArg) -> Response:
        rates = getattr(await policies_of(services, namespace), rate.fields[0])
        value = rates.get(services.cluster)
        return empty() if value is None else json_record(value)

    @router.post(path, dependencies=ADMINISTER, name=f"set {rate.path}")
    async def put(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
        value = replace(of_document(rate.record, await object_body(request) or {}), other={})
        rate.check(value)
        return await change_policies(services, namespace, _rated(rate, services.cluster, value))

    @router.delete(path, dependencies=ADMINISTER, name=f"delete {rate.path}")
    async def delete(namespace: NamespaceArg, services: ServicesArg) -> Response:
        return await change_policies(services, namespace, _rated(rate, services.cluster, None))


def _rated(rate: Rate, cluster: str, value: JsonRecord | None) -> Callable[[Policies], Policies]:
    def change(policies: Policies) -> Policies:
        changed = {}
        for field in rate.fields:
            others = {key: each for key, each in getattr(policies, field).items() if key != cluster}
            changed[field] = others if value is None else {**others, cluster: value}
        return _setting(changed)(policies)

    return change


for _rate in RATES:
    _serve_rate(_rate)


# Making subscriptions


@router.get("/autoSubscriptionCreation", dependencies=READ)
async def get_auto_creation(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Whether a subscription comes to be by being used."""
    override = (await policies_of(services, namespace)).auto_subscription_creation_override
    return empty() if override is None else json_record(override)


@router.post("/autoSubscriptionCreation", dependencies=ADMINISTER)
async def set_auto_creation(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Have it so, or not."""
    body = await object_body(request) or {}
    override = replace(of_document(AutoSubscriptionCreation, body), other={})
    return await change_policies(
        services, namespace, _setting({"auto_subscription_creation_override": override})
    )


@router.delete("/autoSubscriptionCreation", dependencies=ADMINISTER)
async def delete_auto_creation(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on as the broker's settings say."""
    return await change_policies(
        services, namespace, _setting({"auto_subscription_creation_override": None})
    )


@router.get("/subscriptionTypesEnabled", dependencies=READ)
async def get_types(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Which types of subscription there may be; none where the broker's settings hold."""
    return Json(list((await policies_of(services, namespace)).subscription_types_enabled))


@router.post("/subscriptionTypesEnabled", dependencies=ADMINISTER)
async def set_types(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Let there be these."""
    labels = [each.label for each in SubscriptionType]
    names = await json_body(request)
    if not isinstance(names, list) or not all(each in labels for each in names):
        raise RestError(400, f"The body should be a list of {', '.join(labels)}")
    enabled = tuple(each for each in labels if each in names)
    return await change_policies(
        services, namespace, _setting({"subscription_types_enabled": enabled})
    )


@router.delete("/subscriptionTypesEnabled", dependencies=ADMINISTER)
async def delete_types(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on as the broker's settings say."""
    return await change_policies(services, namespace, _setting({"subscription_types_enabled": ()}))
