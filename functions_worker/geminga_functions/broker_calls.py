"""REST requests to brokers, of which each will do: where one does not answer, the next is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

from geminga_server.errors import ServerUnreachable
from geminga_server.rest_calls import RestAnswer, RestCall, RestCalls


def topic_url(web_url: str, topic: str, rest: str) -> str:
    """Where ``rest`` of the topic with that whole name is asked for."""
    domain, _, local = topic.partition("://")
    return f"{web_url.rstrip('/')}/admin/v2/{domain}/{quote(local)}{rest}"


class BrokerCalls:
    """``RestCalls`` in which the first of ``urls`` stands for all of them; requests to other
    servers go where they say."""

    def __init__(self, calls: RestCalls, urls: Sequence[str]) -> None:
        self._calls = calls
        self._named = urls[0]
        # The one that answered last comes first.
        self._urls = list(urls)

    @property
    def prefers_tls(self) -> bool:
        """As ``RestCalls.prefers_tls``."""
        return self._calls.prefers_tls

    async def call(self, call: RestCall) -> RestAnswer:
        """As ``RestCalls.call``. Raises ``ServerUnreachable`` where none answers."""
        if not call.url.startswith(f"{self._named}/"):
            return await self._calls.call(call)
        rest = call.url.removeprefix(self._named)
        failure: ServerUnreachable | None = None
        for url in list(self._urls):
            try:
                answer = await self._calls.call(replace(call, url=url + rest))
            except ServerUnreachable as error:
                failure = error
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return answer
        assert failure is not None
        raise failure
