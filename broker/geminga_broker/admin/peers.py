"""What one broker asks of others, so that a request is answered whichever broker it reaches.

A request about a partitioned topic or a whole namespace is taken apart: what this broker owns it
does itself, and for the rest it asks the owners in the words of the same REST interface. They are
asked with the credentials of the request, so that each decides for itself what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Request

from geminga_broker.errors import SubscriptionNotFound, TopicNotFound
from geminga_broker.ownership.addresses.address import Owner
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.rest.errors import RestError
from geminga_server.rest_calls import RestAnswer, RestCall, RestCalls

PARTITION_MISSING = "Topic partitions were not yet created"
# What of a request goes with it: what it may do, and of what kind its body is.
_FORWARDED = ("authorization", "content-type")
_SUBSCRIPTION_MISSING = re.compile(r"Subscription (.*) not found for topic .*", re.DOTALL)
_TOPIC_SEGMENT = 6  # of /admin/v2/{domain}/{tenant}/{namespace}/{topic}/...


def of_topic(request: Request, topic: TopicName, rest: str | None = None) -> str:
    """The path of this request about another topic; ``rest`` is what follows the topic's name, by
    default what follows it here."""
    segments = request.scope["path"].split("/")
    behind = segments[_TOPIC_SEGMENT + 1 :] if rest is None else rest.split("/") if rest else []
    return "/".join([*segments[:_TOPIC_SEGMENT], quote(topic.local, safe=""), *behind])


async def ask(
    calls: RestCalls,
    request: Request,
    owner: Owner,
    path: str,
    *,
    method: str | None = None,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> RestAnswer:
    """What ``owner`` answers to this request about ``path``; the method, the query and the (JSON)
    body are this request's own where they are not given.

    Raises ``ServerUnreachable``, and ``RestError`` with what the owner refuses it with.
    """
    words = dict(parse_qsl(request.url.query, keep_blank_values=True) if query is None else query)
    words["authoritative"] = "true" if owner.is_authoritative else "false"
    headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
    # Read by the handler, which knows that there is one, and kept by ``json_body``.
    sent = body
    if sent is None:
        sent = bytes(getattr(request.state, "body", b""))
    else:
        headers["content-type"] = "application/json"
    url = f"{owner.rest_url(is_tls=calls.prefers_tls)}{path}?{urlencode(words)}"
    answer = await calls.call(RestCall(method or request.method, url, headers, sent))
    if not answer.is_success:
        raise RestError(answer.status, answer.reason)
    return answer


def raise_if_missing(error: RestError, topic: TopicName) -> None:
    """Raise ``TopicNotFound`` or ``SubscriptionNotFound`` where this refusal by another broker says
    so of ``topic``: both have one status."""
    if error.status != 404:
        return
    if error.reason in (PARTITION_MISSING, str(TopicNotFound(str(topic)))):
        raise TopicNotFound(str(topic)) from error
    missing = _SUBSCRIPTION_MISSING.fullmatch(error.reason)
    if missing is not None:
        raise SubscriptionNotFound(missing[1], str(topic)) from error
