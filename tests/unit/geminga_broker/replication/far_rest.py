"""Other clusters as they answer over REST about partitioned topics: as Apache Pulsar 4.0.6 does."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from geminga_server.errors import ServerUnreachable
from geminga_server.http.rest_calls import RestAnswer, RestCall


def _refusal(status: int, reason: str) -> RestAnswer:
    return RestAnswer(status, json.dumps({"reason": reason}).encode())


class FarRest:
    """``RestCalls`` to the brokers whose hosts are in ``topics``: each has topics, by the paths of
    their names, with so many partitions, 0 for none; other hosts do not answer."""

    prefers_tls = False

    def __init__(self, *hosts: str) -> None:
        self.topics: dict[str, dict[str, int]] = {host: {} for host in hosts}
        self.asked: list[str] = []

    async def call(self, call: RestCall) -> RestAnswer:
        """Answer as the host that is asked."""
        url = urlsplit(call.url)
        self.asked.append(f"{call.method} {call.url} {call.body.decode()}".strip())
        if url.netloc not in self.topics:
            raise ServerUnreachable(f"{url.netloc} cannot be reached")
        topics, name = self.topics[url.netloc], url.path.removeprefix("/admin/v2/")
        name = name.removesuffix("/partitions")
        if call.method == "GET":
            if name not in topics:
                return _refusal(404, f"Topic {name} not found")
            return RestAnswer(200, json.dumps({"partitions": topics[name]}).encode())
        wanted = int(call.body)
        if call.method == "PUT":
            assert url.query == "createLocalTopicOnly=true"
            if name in topics:
                return _refusal(409, "This topic already exists")
        else:
            assert (call.method, url.query) == ("POST", "updateLocalTopicOnly=true")
            if not topics.get(name):
                return _refusal(409, f"Topic {name} is not the partitioned topic.")
            if wanted < topics[name]:
                short = f"Desired partitions {wanted} can't be less than the current partitions"
                return _refusal(422, f"{short} {topics[name]}.")
        topics[name] = wanted
        return RestAnswer(204)
