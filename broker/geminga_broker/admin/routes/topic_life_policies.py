"""``/admin/v2/namespaces/…``: whether topics come to be by being used, and go when nobody does.

What the policies mean is ``policies.auto_creation`` and ``policies.inactivity``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter

from geminga_broker.admin.errors import RestError
from geminga_broker.admin.one_policy import PREFIX, record, serve_policy
from geminga_broker.policies.auto_creation import check_auto_topic_creation
from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.inactivity import check_inactive_topics
from geminga_protocol.records.namespaces import AutoTopicCreation, InactiveTopics

PolicyT = TypeVar("PolicyT")

router = APIRouter(prefix=PREFIX)


def _refusing(check: Callable[[PolicyT], None]) -> Callable[[PolicyT], None]:
    """Answer 412 for a policy that no namespace can have, as upstream does with these."""

    def refuse(policy: PolicyT) -> None:
        try:
            check(policy)
        except InvalidPolicy as error:
            raise RestError(412, str(error)) from None

    return refuse


serve_policy(
    router,
    "/autoTopicCreation",
    "auto_topic_creation_override",
    record(AutoTopicCreation, _refusing(check_auto_topic_creation)),
)
serve_policy(
    router,
    "/inactiveTopicPolicies",
    "inactive_topics",
    record(
        InactiveTopics,
        _refusing(check_inactive_topics),
        missing="inactive topic policies should not be null",
    ),
)
