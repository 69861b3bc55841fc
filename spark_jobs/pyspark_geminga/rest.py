"""The REST side of a cluster, as far as planning needs it: what the ledgers of topics hold.

No command of the binary protocol lists ledgers; ``internalStats`` does, of Geminga and of Apache
Pulsar alike.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from geminga import LOG_START, LogPosition
from geminga_protocol.pulsar.topics.topic_names import TopicName
from pyspark_geminga.access import Access
from pyspark_geminga.errors import AdminRefused
from pyspark_geminga.log_layout import Ledger, LogLayout

# A broker that does not serve a topic names the one that does; more hops than brokers are a loop.
REDIRECTS_MAX = 10
TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
# Requests of many topics go side by side, but not without bound.
REQUESTS_MAX = 8
NOT_FOUND = 404
FORBIDDEN = (401, 403)


class AdminClient:
    """Asks brokers over HTTP, and keeps a connection to each for the next time."""

    def __init__(self, access: Access) -> None:
        assert access.admin_url is not None
        self._urls = _hosts(access.admin_url)
        admin = access.for_admin()
        self._tls = admin.tls()
        self._authentication = admin.authentication()
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()
        self._slots = asyncio.Semaphore(REQUESTS_MAX)

    async def layouts(self, topic: str, partitions: int) -> dict[str, LogLayout | None]:
        """The log of ``topic``, or of each of its ``partitions``, by whole names.

        ``None`` for one that is not there. Raises ``AdminRefused`` or ``OSError``.
        """
        name = TopicName.parse(topic)
        if not partitions:
            return {topic: await self._layout(name)}
        # One broker tells at once what it knows of all of them; the others are asked for theirs.
        document = await self.get(name, "partitioned-internalStats")
        known = cast(dict[str, Any], document.get("partitions", {})) if document else {}
        names = [name.partition(index) for index in range(partitions)]
        missing = [each for each in names if str(each) not in known]
        found = await asyncio.gather(*[self._layout(each) for each in missing])
        by_name: dict[str, LogLayout | None] = {
            str(each): layout for each, layout in zip(missing, found, strict=True)
        }
        return by_name | {topic: layout_of(stats) for topic, stats in known.items()}

    async def has_transactions(self) -> bool:
        """Has the cluster transactions, so that what is stored may not be readable yet?

        A role that may not know has to expect it. Raises ``OSError``.
        """
        try:
            return await self._ask_for("/admin/v3/transactions/coordinators") is not None
        except AdminRefused as refusal:
            return refusal.status in FORBIDDEN  # 503 says that they are switched off

    async def backlogs(self, topic: str) -> dict[str, int] | None:
        """How much of a topic, of all its partitions if it has some, each subscription has not
        acknowledged; ``None`` if there is no such topic. Raises ``AdminRefused`` or ``OSError``."""
        name = TopicName.parse(topic)
        document = await self.get(name, "stats") or await self.get(name, "partitioned-stats")
        if document is None:
            return None
        subscriptions: dict[str, dict[str, Any]] = document["subscriptions"]
        return {name: int(each["msgBacklog"]) for name, each in subscriptions.items()}

    def close(self) -> None:
        """Close the connections that are kept for the next time."""
        with self._lock:
            for idle in self._idle.values():
                while idle:
                    idle.pop().close()

    async def _layout(self, topic: TopicName) -> LogLayout | None:
        document = await self.get(topic, "internalStats")
        return None if document is None else layout_of(document)

    async def get(self, topic: TopicName, what: str) -> dict[str, Any] | None:
        """What is asked about a topic; ``None`` where there is no such topic."""
        path = f"/admin/v2/persistent/{topic.namespace}/{topic.encoded_local}/{what}"
        return await self._ask_for(path)

    async def _ask_for(self, path: str) -> dict[str, Any] | None:
        """The JSON object, ``None`` where there is no such thing."""
        headers: Mapping[str, str] = {}
        if self._authentication is not None:
            headers = await self._authentication.http_headers()
        async with self._slots:
            return await asyncio.to_thread(self._request, path, headers)

    def _request(self, path: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
        failed: OSError | None = None
        for base in self._urls:
            try:
                return self._follow(base + path, headers)
            except OSError as error:
                failed = error
        assert failed is not None
        raise failed

    def _follow(self, url: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """Ask at ``url``, and where its answers lead."""
        for _ in range(REDIRECTS_MAX):
            status, location, body = self._ask(url, headers)
            if location is not None and status // 100 == 3:
                url = urljoin(url, location)
                continue
            if status == NOT_FOUND:
                return None
            if status != 200:
                raise AdminRefused(url, status, body[:500].decode(errors="replace"))
            try:
                return cast(dict[str, Any], json.loads(body))
            except ValueError as error:
                raise AdminRefused(url, status, f"no JSON: {error}") from error
        raise AdminRefused(url, 307, f"{REDIRECTS_MAX} redirects in a row")

    def _ask(self, url: str, headers: Mapping[str, str]) -> tuple[int, str | None, bytes]:
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        with self._lock:
            idle = self._idle.setdefault(base, [])
            connection = idle.pop() if idle else None
        # A connection that was idle may have been closed by the broker: a new one answers for sure.
        for is_last in (connection is None, True):
            connection = connection or self._connection(parts.scheme, parts.hostname, parts.port)
            try:
                connection.request("GET", target, headers=dict(headers))
                answer = connection.getresponse()
                body = answer.read(ANSWER_BYTES_MAX)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                connection = None
                if is_last:
                    raise OSError(f"{base} does not answer: {error}") from error
                continue
            with self._lock:
                idle.append(connection)
            return answer.status, answer.headers.get("Location"), body
        raise AssertionError("the last attempt returns or raises")

    def _connection(
        self, scheme: str, host: str | None, port: int | None
    ) -> http.client.HTTPConnection:
        if scheme == "https":
            context = self._tls.context()
            return http.client.HTTPSConnection(host or "", port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(host or "", port, timeout=TIMEOUT_S)


def layout_of(stats: Mapping[str, Any]) -> LogLayout:
    """What ``PersistentTopicInternalStats`` say of the log.

    Of the ledger that is being written they have the entries apart, in ``lastConfirmedEntry`` and
    ``currentLedgerSize``; Pulsar's list shows 0 for it.
    """
    last_ledger, _, last_entry = str(stats["lastConfirmedEntry"]).partition(":")
    end = LogPosition(int(last_ledger), int(last_entry) + 1)
    if end.ledger_id < 0:
        end = LOG_START  # nothing was ever written
    ledgers: list[Ledger] = []
    for number, each in enumerate(stats["ledgers"], 1):
        ledger_id, entries, size = int(each["ledgerId"]), int(each["entries"]), int(each["size"])
        if number == len(stats["ledgers"]):
            entries = max(entries, int(stats["currentLedgerEntries"]))
            size = max(size, int(stats["currentLedgerSize"]))
        if ledger_id == end.ledger_id:
            entries = end.entry_id
        ledgers.append(Ledger(ledger_id, entries, size))
    return LogLayout(tuple(ledgers), end, int(stats["entriesAddedCounter"]))


def _hosts(url: str) -> list[str]:
    """``http://a:1,b:2`` is two brokers."""
    scheme, _, hosts = url.partition("://")
    return [f"{scheme}://{host}" for host in hosts.rstrip("/").split(",")]
