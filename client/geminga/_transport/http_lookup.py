"""Lookups over HTTP, for service URLs that begin with ``http://`` or ``https://``.

Topics themselves are always reached by Pulsar's binary protocol, with TLS where the lookups have
it. ``HttpLookup`` has the methods of ``Lookup``, and promises what that promises.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from geminga._http import HttpAnswer, HttpRequest, fetch
from geminga._transport.connection import Connection
from geminga._transport.lookup import REDIRECTS_MAX, Lookup, TopicsMode, may_another_do_better
from geminga._transport.service_urls import Route, parse_service_url
from geminga.authentication import Authentication
from geminga.errors import (
    BrokerFailed,
    BrokerRefused,
    ClientError,
    NotAllowed,
    NotAuthenticated,
    NotAuthorized,
    NotConnected,
    ServiceNotReady,
    TooManyRedirects,
    TopicNotFound,
)
from geminga.tls import Tls
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.enums import SchemaType
from geminga_protocol.pulsar.topics.topic_names import TopicName

# The errors of the binary protocol that a status stands for. Any other 4xx is a request that no
# broker accepts, any other 5xx a failure that may pass.
_REFUSALS: dict[int, tuple[type[BrokerRefused], str]] = {
    401: (NotAuthenticated, "AuthenticationError"),
    403: (NotAuthorized, "AuthorizationError"),
    404: (TopicNotFound, "TopicNotFound"),
    429: (ServiceNotReady, "TooManyRequests"),
    503: (ServiceNotReady, "ServiceNotReady"),
}
_REDIRECTS = frozenset((301, 302, 307, 308))

# +----------+-----+------------+-------+
# | key_size | key | value_size | value |   a KEY_VALUE schema's definition; sizes of what follows
# |   u32    |     |    u32     |       |
# +----------+-----+------------+-------+
_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class WebOptions:
    """How HTTP is spoken with brokers."""

    tls: Tls
    authentication: Authentication | None
    # Which of its addresses a broker is to name; its usual ones where it is ``None``.
    listener_name: str | None
    # For each request.
    timeout_s: float
    redirects_max: int = REDIRECTS_MAX


class HttpLookup:
    """Asks one broker's web service for as long as it answers, then the next one.

    ``urls`` are those of brokers, at least one. Topics cannot be watched over HTTP.
    """

    def __init__(self, urls: tuple[str, ...], options: WebOptions, random: Random) -> None:
        self._urls = urls
        self._options = options
        # The index of the URL that is asked next. Many clients with the same URLs begin at
        # different brokers.
        self._turn = random.randrange(len(urls))

    async def partitions(self, topic: str, *, creates: bool = True) -> int:
        """How many partitions the topic has, as ``Lookup.partitions``."""
        path = f"/admin/v2/{TopicName.parse(topic).url_path}/partitions"
        # Without the parameter, whose default is false, a broker makes no topic.
        query = {"checkAllowAutoCreation": "true"} if creates else {}
        found = _object(await self._get(path, query))
        return int(found.get("partitions", 0))

    async def schema(self, topic: str, version: bytes | None = None) -> api.Schema:
        """That version of the topic's schema, as ``Lookup.schema``."""
        name = TopicName.parse(topic)
        path = f"/admin/v2/schemas/{name.namespace}/{quote(name.local, safe='')}/schema"
        if version is not None:
            # The path has the version as a number, of which the binary protocol has the eight bytes
            # (``LongSchemaVersion``).
            path += f"/{int.from_bytes(version, 'big', signed=True)}"
        found = _object(await self._get(path))
        # HTTP has the type by upstream's name, the binary protocol by its number.
        kind = SchemaType.__members__.get(str(found.get("type")), SchemaType.NONE)  # BYTES is NONE
        text = str(found.get("data") or "")
        definition = text.encode()
        if kind is SchemaType.KEY_VALUE:
            # The binary protocol has a pair's two definitions as bytes, HTTP as an object of both.
            halves: Mapping[str, object] = json.loads(text)
            definition = b""
            for half in (halves.get("key", ""), halves.get("value", "")):
                encoded = b"" if half == "" else json.dumps(half, separators=(",", ":")).encode()
                definition += _SIZE.pack(len(encoded)) + encoded
        properties = _object(found.get("properties") or {})
        return api.Schema(
            name=name.local,
            schema_data=definition,
            type=api.Schema.Type.ValueType(kind),
            properties=[
                api.KeyValue(key=str(key), value=str(value)) for key, value in properties.items()
            ],
        )

    async def topics(
        self, namespace: str, mode: TopicsMode, known_hash: str
    ) -> tuple[list[str] | None, str]:
        """The whole names of a namespace's topics, each partition by itself. Web services have no
        hash of them. Raises ``ClientError``."""
        del known_hash
        words = {"mode": mode.upper().replace("-", "_")}
        found = await self._get(f"/admin/v2/namespaces/{namespace}/topics", words)
        if not isinstance(found, list):
            raise BrokerFailed("UnknownError", "the list of topics is no list")
        return [str(name) for name in found], ""

    async def watch_topics(
        self, watcher_id: int, namespace: str, pattern: str, changed: Callable[[], None]
    ) -> Connection | None:
        """``None``: a web service cannot report when topics come and go."""
        del watcher_id, namespace, pattern, changed
        return None

    async def owner(self, topic: str) -> Route:
        """How to reach the broker that serves the topic. Raises ``ClientError``."""
        listener = self._options.listener_name
        words = {} if listener is None else {"listenerName": listener}
        path = f"/lookup/v2/topic/{TopicName.parse(topic).url_path}"
        found = _object(await self._get(path, words))
        is_tls = self._urls[0].startswith("https:")
        url = found.get("brokerUrlTls" if is_tls else "brokerUrl")
        if not url:
            scheme = "pulsar+ssl://" if is_tls else "pulsar://"
            raise NotConnected(f"the owner of {topic} serves no {scheme}")
        (address, *_) = parse_service_url(str(url))
        return Route(address)

    # ---- HTTP

    async def _get(self, path: str, words: Mapping[str, str] | None = None) -> object:
        """The JSON value at ``path``, from the first broker that knows it, beginning with the one
        in turn."""
        target = f"{path}?{urlencode(words)}" if words else path
        method = self._options.authentication
        headers = {"Accept": "application/json"}
        if method is not None:
            # Anew for each request: a token may have expired since the last one.
            headers |= await method.http_headers()
        # Replaced in the first round: there is at least one URL.
        error: ClientError = NotConnected("there is no broker to ask")
        # As in ``Lookup._service_connection``: the round is this call's own, and other calls may
        # move the turn on meanwhile.
        first = self._turn
        for step in range(len(self._urls)):
            place = (first + step) % len(self._urls)
            try:
                return await self._ask(f"{self._urls[place]}{target}", headers)
            except ClientError as reason:
                if not may_another_do_better(reason):
                    raise
                error = reason
                # Of many lookups that one broker fails only the first moves the turn on.
                if self._turn == place:
                    self._turn = (place + 1) % len(self._urls)
        raise error

    async def _ask(self, url: str, headers: Mapping[str, str]) -> object:
        """The JSON value at ``url``, or where the broker there redirects to."""
        # For the error: the topic is in it, whichever broker was asked last.
        path = urlsplit(url).path
        for _ in range(self._options.redirects_max):
            request = HttpRequest(url, headers)
            answer = await fetch(request, self._options.tls, self._options.timeout_s)
            if answer.status not in _REDIRECTS or answer.location is None:
                return _value(url, answer)
            following = urljoin(url, answer.location)
            if urlsplit(following).scheme != urlsplit(url).scheme:
                # From https to http, every host on the way could read the credentials.
                raise NotConnected(f"{url} leads to {following}, which is not secured as it is")
            # The next broker is shown the credentials, too: brokers redirect to the one that owns
            # the topic.
            url = following
        raise TooManyRedirects(path, self._options.redirects_max)


def _value(url: str, answer: HttpAnswer) -> object:
    """The JSON value of an answer; raises what a status that is no success stands for."""
    try:
        value: object = json.loads(answer.body)
    except ValueError:
        value = None
    if answer.status == 200:
        # A proxy, or another web server at this address, answers with a page.
        if value is None:
            raise NotConnected(f"{url} answers no JSON: is it a broker's web service?")
        return value
    # Brokers give a JSON object with a reason; servers in front of them give anything.
    reason = value.get("reason") if isinstance(value, dict) else None
    # Only the class and the name decide what follows (``retry``, ``is_final``); the text is for
    # people.
    if answer.status in _REFUSALS:
        refused, name = _REFUSALS[answer.status]
    elif answer.status >= 500:
        refused, name = BrokerFailed, "UnknownError"
    else:
        refused, name = NotAllowed, "NotAllowedError"
    raise refused(name, f"{url} answers {answer.status}: {reason or 'no reason'}")


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BrokerFailed("UnknownError", "the web service answers no JSON object")
    return value


# Either way of asking brokers.
TopicLookup = Lookup | HttpLookup
