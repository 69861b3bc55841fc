"""``/admin/v2/namespaces/…``: what a namespace says of consuming, read and changed one by one.

Here: how long messages live, how many may consume and hold what, how fast they are served and may
subscribe, which types of subscription there are and whether using one makes it. What the values
mean for topics is in ``policies``.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from geminga_broker.admin.answers import Json
from geminga_broker.admin.errors import RestError
from geminga_broker.admin.one_policy import (
    PREFIX,
    change_policies,
    number,
    policies_of,
    record_or_nothing,
    serve,
    serve_policy,
    serve_rate,
    setting,
)
from geminga_broker.admin.parameters import NamespaceArg, ServicesArg, json_body
from geminga_broker.policies.dispatching import check_dispatch_rate
from geminga_broker.policies.subscribing import check_subscribe_rate
from geminga_protocol.pulsar.enums import SubscriptionType
from geminga_protocol.records.namespaces import (
    AutoSubscriptionCreation,
    DispatchRate,
    SubscribeRate,
)

LIMITS = {
    "maxConsumersPerTopic": "consumers_per_topic_max",
    "maxConsumersPerSubscription": "consumers_per_subscription_max",
    "maxSubscriptionsPerTopic": "subscriptions_per_topic_max",
    "maxUnackedMessagesPerConsumer": "unacked_per_consumer_max",
    "maxUnackedMessagesPerSubscription": "unacked_per_subscription_max",
}

router = APIRouter(prefix=PREFIX)


def _any(policy: AutoSubscriptionCreation) -> None:
    del policy


async def _get_types(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """Which types of subscription there may be; none where the broker's settings hold."""
    return Json(list((await policies_of(services, namespace)).subscription_types_enabled))


async def _set_types(request: Request, namespace: NamespaceArg, services: ServicesArg) -> Response:
    labels = [each.label for each in SubscriptionType]
    names = await json_body(request)
    if not isinstance(names, list) or not all(each in labels for each in names):
        raise RestError(400, f"The body should be a list of {', '.join(labels)}")
    enabled = tuple(each for each in labels if each in names)
    return await change_policies(
        services, namespace, setting({"subscription_types_enabled": enabled})
    )


async def _delete_types(namespace: NamespaceArg, services: ServicesArg) -> Response:
    return await change_policies(services, namespace, setting({"subscription_types_enabled": ()}))


serve_policy(
    router,
    "/messageTTL",
    "message_ttl_s",
    number("Invalid value for message TTL, message TTL must >= 0"),
)
for _name, _field in LIMITS.items():
    serve_policy(router, f"/{_name}", _field, number(f"{_name} must be 0 or more"))
serve_rate(
    router,
    "/dispatchRate",
    # The second is the first's old name; upstream writes both.
    ("topic_dispatch_rate", "cluster_dispatch_rate"),
    record_or_nothing(DispatchRate, check_dispatch_rate),
)
serve_rate(
    router,
    "/subscriptionDispatchRate",
    ("subscription_dispatch_rate",),
    record_or_nothing(DispatchRate, check_dispatch_rate),
)
serve_rate(
    router,
    "/subscribeRate",
    ("cluster_subscribe_rate",),
    record_or_nothing(SubscribeRate, check_subscribe_rate),
)
serve_policy(
    router,
    "/autoSubscriptionCreation",
    "auto_subscription_creation_override",
    record_or_nothing(AutoSubscriptionCreation, _any),
)
serve(router, "/subscriptionTypesEnabled", _get_types, _set_types, _delete_types)
