"""``/admin/v2/namespaces/…``: what a namespace says of publishing, read and changed one by one.

Here: deduplication, publish rate, number of producers, encryption. What they mean for topics is
``policies.publishing``.
"""

from __future__ import annotations

from fastapi import APIRouter, Request

from geminga_broker.admin.one_policy import (
    PREFIX,
    flag,
    number,
    record_or_nothing,
    serve_policy,
    serve_rate,
)
from geminga_broker.policies.publishing import check_publish_rate
from geminga_protocol.records.namespaces import PublishRate

router = APIRouter(prefix=PREFIX)


async def _yes_or_no(request: Request) -> bool:
    return bool(await flag(request))


serve_policy(router, "/deduplication", "deduplication_enabled", flag)
serve_policy(
    router,
    "/deduplicationSnapshotInterval",
    "deduplication_snapshot_interval_s",
    number("interval must be greater than or equal to 0"),
    can_delete=False,
)
serve_policy(
    router,
    "/maxProducersPerTopic",
    "producers_per_topic_max",
    number("maxProducersPerTopic must be 0 or more"),
)
serve_policy(router, "/encryptionRequired", "encryption_required", _yes_or_no, can_delete=False)
serve_rate(
    router,
    "/publishRate",
    ("publish_max_message_rate",),
    record_or_nothing(PublishRate, check_publish_rate),
)
