"""``/admin/v2/namespaces/…``: whether topics come to be by being used, and go when nobody does.

What the policies mean is ``metadata.auto_creation`` and ``topics.inactivity``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from magnetar_broker.admin.access import on_namespace
from magnetar_broker.admin.answers import empty, json_record
from magnetar_broker.admin.errors import RestError
from magnetar_broker.admin.facade import Services
from magnetar_broker.admin.parameters import NamespaceArg, ServicesArg, object_body
from magnetar_broker.admin.routes.namespace_policies import change_policies, policies_of
from magnetar_broker.metadata.errors import InvalidPolicy
from magnetar_broker.metadata.policy_rules import check_auto_topic_creation, check_inactive_topics
from magnetar_protocol.pulsar.topic_names import NamespaceName
from magnetar_protocol.records.json_records import of_document
from magnetar_protocol.records.namespaces import AutoTopicCreation, InactiveTopics
from magnetar_server.authorization import Action

router = APIRouter(prefix="/admin/v2/namespaces/{tenant}/{namespace}")

READ = [on_namespace(Action.READ)]
ADMINISTER = [on_namespace(Action.ADMINISTER)]


@router.get("/autoTopicCreation", dependencies=READ)
async def get_auto_topic_creation(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """What becomes of a topic that is used before it was created."""
    policy = (await policies_of(services, namespace)).auto_topic_creation_override
    return empty() if policy is None else json_record(policy)


@router.post("/autoTopicCreation", dependencies=ADMINISTER)
async def set_auto_topic_creation(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Say it; no body takes the policy away."""
    body = await object_body(request)
    if body is None:
        return await _set_auto_topic_creation(services, namespace, None)
    policy = replace(of_document(AutoTopicCreation, body), other={})
    with _refused():
        check_auto_topic_creation(policy)
    return await _set_auto_topic_creation(services, namespace, policy)


@router.delete("/autoTopicCreation", dependencies=ADMINISTER)
async def delete_auto_topic_creation(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on what the broker's settings say."""
    return await _set_auto_topic_creation(services, namespace, None)


async def _set_auto_topic_creation(
    services: Services, namespace: NamespaceName, policy: AutoTopicCreation | None
) -> Response:
    return await change_policies(
        services,
        namespace,
        lambda policies: replace(policies, auto_topic_creation_override=policy),
    )


@router.get("/inactiveTopicPolicies", dependencies=READ)
async def get_inactive_topics(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """When topics that nobody uses are deleted."""
    policy = (await policies_of(services, namespace)).inactive_topics
    return empty() if policy is None else json_record(policy)


@router.post("/inactiveTopicPolicies", dependencies=ADMINISTER)
async def set_inactive_topics(
    request: Request, namespace: NamespaceArg, services: ServicesArg
) -> Response:
    """Say it."""
    body = await object_body(request)
    if body is None:
        raise RestError(400, "inactive topic policies should not be null")
    policy = replace(of_document(InactiveTopics, body), other={})
    with _refused():
        check_inactive_topics(policy)
    return await change_policies(
        services, namespace, lambda policies: replace(policies, inactive_topics=policy)
    )


@router.delete("/inactiveTopicPolicies", dependencies=ADMINISTER)
async def delete_inactive_topics(namespace: NamespaceArg, services: ServicesArg) -> Response:
    """From now on what the broker's settings say."""
    return await change_policies(
        services, namespace, lambda policies: replace(policies, inactive_topics=None)
    )


@contextmanager
def _refused() -> Generator[None, None, None]:
    """Answer 412 for a policy that no namespace can have, as upstream does with these."""
    try:
        yield
    except InvalidPolicy as error:
        raise RestError(412, str(error)) from None
