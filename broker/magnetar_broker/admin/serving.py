"""Getting a request about a topic to the broker that serves it."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from fastapi import Request

from magnetar_broker.admin.errors import ServedElsewhere
from magnetar_broker.admin.facade import Services
from magnetar_protocol.pulsar.topic_names import TopicName


async def serve_here(request: Request, services: Services, topic: TopicName) -> None:
    """Return if this broker owns the topic's bundle, after acquiring it if nobody did.

    Raises ``ServedElsewhere`` with this request's URL at the owner, ``NamespaceNotFound``.
    """
    owner = await services.ownership.owner(topic)
    if owner.is_self:
        return
    query = [pair for pair in parse_qsl(request.url.query) if pair[0] != "authoritative"]
    query.append(("authoritative", "true"))
    # The routed path is the raw one: the owner gets the name as it was sent.
    url = owner.http_url or owner.http_url_tls
    raise ServedElsewhere(f"{url}{request.scope['path']}?{urlencode(query)}")
