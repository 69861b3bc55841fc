"""Asks other brokers for their part of a request, so that it is answered on whichever it arrives.

A request about a partitioned topic or a whole namespace is taken apart: this broker serves what it
owns itself, and asks the owners of the rest over the same REST interface. They are asked with the
credentials of the request, so that each of them authorizes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Request

from geminga_broker.errors import SubscriptionNotFound, TopicNotFound
from geminga_broker.ownership.addresses.address import Owner
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.http.rest_calls import RestAnswer, RestCall, RestCalls
from geminga_server.rest.errors import RestError

PARTITION_MISSING = "Topic partitions were not yet created"
# The headers that are passed on: the credentials, and the type of the body.
_FORWARDED = ("authorization", "content-type")
_SUBSCRIPTION_MISSING = re.compile(r"Subscription (.*) not found for topic .*", re.DOTALL)
# The index of the topic's name among the segments of a path.
_TOPIC_SEGMENT = 6  # of /admin/v2/{domain}/{tenant}/{namespace}/{topic}/...


def of_topic(request: Request, topic: TopicName, rest: str | None = None) -> str:
    """The path of this request, but for another topic; ``rest`` is what follows the topic's name,
    by default the same as here."""
    segments = request.scope["path"].split("/")
    # Segments are taken as they came, still quoted, so that names with slashes stay one segment.
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
    """The answer of ``owner`` to this request for ``path``; method, query and (JSON) body are those
    of this request where they are not given.

    Raises ``ServerUnreachable``, and ``RestError`` with the status and text of a refusal.
    """
    # Of words that come twice the last one counts, as none of these calls takes a list.
    words = dict(parse_qsl(request.url.query, keep_blank_values=True) if query is None else query)
    # The owner is asked as the one that decided, or was chosen: it must not pass the request on.
    words["authoritative"] = "true" if owner.is_authoritative else "false"
    headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
    # The stream of a body can be read once: the handler did, and ``json_body`` has kept it.
    sent = body
    if sent is None:
        # Empty for a handler that takes no body.
        sent = bytes(getattr(request.state, "body", b""))
    else:
        headers["content-type"] = "application/json"
    url = f"{owner.rest_url(is_tls=calls.prefers_tls)}{path}?{urlencode(words)}"
    # The owner's own refusals come back as ``RestError`` with its status: the client sees the same
    # as if it had asked there.
    answer = await calls.call(RestCall(method or request.method, url, headers, sent))
    if not answer.is_success:
        raise RestError(answer.status, answer.reason)
    return answer


def raise_if_missing(error: RestError, topic: TopicName) -> None:
    """Raise ``TopicNotFound`` or ``SubscriptionNotFound`` where another broker refused with that.

    Both have the status 404: the text tells them apart.
    """
    if error.status != 404:
        return
    # Compared with the text that this broker would send; upstream's is the same.
    if error.reason in (PARTITION_MISSING, str(TopicNotFound(str(topic)))):
        raise TopicNotFound(str(topic)) from error
    # The name is in the text only.
    missing = _SUBSCRIPTION_MISSING.fullmatch(error.reason)
    if missing is not None:
        raise SubscriptionNotFound(missing[1], str(topic)) from error
