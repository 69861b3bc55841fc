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

# A broker redirects a request about a topic to the broker that serves it. More hops are a loop.
REDIRECTS_MAX = 10
# Of connecting, and of each wait for bytes; a broker may load a topic before it answers.
TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
# Requests that run concurrently.
REQUESTS_MAX = 8
NOT_FOUND = 404
# Unauthorized: the client is not known. Forbidden: the role may not.
FORBIDDEN = (401, 403)


class AdminClient:
    """Asks brokers over HTTP, and keeps connections to them for the next requests."""

    def __init__(self, access: Access) -> None:
        assert access.admin_url is not None
        # ``http://a:1,b:2`` is two brokers, which are tried in turn.
        scheme, _, hosts = access.admin_url.partition("://")
        self._urls = [f"{scheme}://{host}" for host in hosts.rstrip("/").split(",")]
        # Both are made once: reading keys and tokens for each request would be wasted.
        admin = access.for_admin()
        self._tls = admin.tls()
        self._authentication = admin.authentication()
        # Connections without a request, by the URL of the broker. Requests run in threads: the lock
        # guards these lists, and is not held during a request.
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
        # One request returns the partitions that a broker knows; one more each gets the others.
        # None where the topic was deleted meanwhile: each partition is then asked for by itself,
        # and is gone.
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
        """Are transactions enabled in the cluster, so that stored messages may not be readable yet?

        For a role that may not ask the answer is yes. Raises ``OSError``.
        """
        try:
            # Upstream: admin/v3/Transactions, which answers 503 unless
            # transactionCoordinatorEnabled.
            return await self._ask_for("/admin/v3/transactions/coordinators") is not None
        except AdminRefused as refusal:
            return refusal.status in FORBIDDEN  # 503 means that they are disabled

    async def backlogs(self, topic: str) -> dict[str, int] | None:
        """The backlog of each subscription in entries, summed up over the partitions of the topic.

        ``None`` if there is no such topic. Raises ``AdminRefused`` or ``OSError``.
        """
        name = TopicName.parse(topic)
        # ``stats`` of a partitioned topic is 404: it is no topic by itself.
        document = await self.get(name, "stats") or await self.get(name, "partitioned-stats")
        if document is None:
            return None
        subscriptions: dict[str, dict[str, Any]] = document["subscriptions"]
        return {name: int(each["msgBacklog"]) for name, each in subscriptions.items()}

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            for idle in self._idle.values():
                while idle:
                    idle.pop().close()

    async def _layout(self, topic: TopicName) -> LogLayout | None:
        document = await self.get(topic, "internalStats")
        return None if document is None else layout_of(document)

    async def get(self, topic: TopicName, what: str) -> dict[str, Any] | None:
        """The JSON object ``what`` about a topic; ``None`` where there is no such topic."""
        path = f"/admin/v2/persistent/{topic.namespace}/{topic.encoded_local}/{what}"
        return await self._ask_for(path)

    async def _ask_for(self, path: str) -> dict[str, Any] | None:
        """The JSON object at ``path``; ``None`` where the broker answers 404."""
        headers: Mapping[str, str] = {}
        if self._authentication is not None:
            headers = await self._authentication.http_headers()
        async with self._slots:
            # The standard library's HTTP client blocks; a library for asyncio would be one more
            # that Spark's machines need.
            return await asyncio.to_thread(self._request, path, headers)

    def _request(self, path: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """Try the brokers in turn until one answers. Runs in a thread, as the methods below."""
        failed: OSError | None = None
        # Only where a broker cannot be reached: an error that one answers is that of all.
        for base in self._urls:
            try:
                return self._follow(base + path, headers)
            except OSError as error:
                failed = error
        assert failed is not None
        raise failed

    def _follow(self, url: str, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """Ask at ``url``, and follow redirects."""
        # The location is a URL of another broker, whole or relative. The headers, with the
        # credentials, go along: a redirect comes from a broker, and leads to another one.
        for _ in range(REDIRECTS_MAX):
            status, location, body = self._ask(url, headers)
            if location is not None and status // 100 == 3:
                url = urljoin(url, location)
                continue
            if status == NOT_FOUND:
                return None
            # What brokers say as text or JSON ({"reason": ...}) is shown as it is, up to a length.
            if status != 200:
                raise AdminRefused(url, status, body[:500].decode(errors="replace"))
            try:
                return cast(dict[str, Any], json.loads(body))
            except ValueError as error:
                raise AdminRefused(url, status, f"no JSON: {error}") from error
        raise AdminRefused(url, 307, f"{REDIRECTS_MAX} redirects in a row")

    def _ask(self, url: str, headers: Mapping[str, str]) -> tuple[int, str | None, bytes]:
        """One request; returns the status, the ``Location`` and the body of its answer."""
        parts = urlsplit(url)
        base = f"{parts.scheme}://{parts.netloc}"
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        with self._lock:
            idle = self._idle.setdefault(base, [])
            # The one that was used last, which is the least likely to have been closed.
            connection = idle.pop() if idle else None
        # The broker may have closed a connection while it was idle, so that a failure of such a one
        # says nothing: the request is repeated on a new connection. GET changes nothing. Two
        # attempts with a connection that was idle, one with a new one.
        for is_last in (connection is None, True):
            host, port = parts.hostname or "", parts.port
            if connection is None and parts.scheme == "https":
                connection = http.client.HTTPSConnection(
                    host, port, timeout=TIMEOUT_S, context=self._tls.context()
                )
            elif connection is None:
                connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
            try:
                connection.request("GET", target, headers=dict(headers))
                answer = connection.getresponse()
                # Read to its end before the connection goes back: ``http.client`` sends no request
                # on a connection whose last answer is unread.
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


def layout_of(stats: Mapping[str, Any]) -> LogLayout:
    """The layout of a log by ``PersistentTopicInternalStats``.

    In Pulsar's list of ledgers the one that is being written has 0 entries and bytes: its numbers
    are in ``lastConfirmedEntry``, ``currentLedgerEntries`` and ``currentLedgerSize``.
    """
    # "ledger:entry", and "-1:-1" for a log without entries.
    last_ledger, _, last_entry = str(stats["lastConfirmedEntry"]).partition(":")
    end = LogPosition(int(last_ledger), int(last_entry) + 1)
    if end.ledger_id < 0:
        end = LOG_START  # nothing was ever written
    ledgers: list[Ledger] = []
    for number, each in enumerate(stats["ledgers"], 1):
        ledger_id, entries, size = int(each["ledgerId"]), int(each["entries"]), int(each["size"])
        # ``max``: a closed last ledger has its numbers in the list, an open one has them beside it.
        if number == len(stats["ledgers"]):
            entries = max(entries, int(stats["currentLedgerEntries"]))
            size = max(size, int(stats["currentLedgerSize"]))
        # The end is exact, and the other numbers may be of another moment.
        if ledger_id == end.ledger_id:
            entries = end.entry_id
        ledgers.append(Ledger(ledger_id, entries, size))
    return LogLayout(tuple(ledgers), end, int(stats["entriesAddedCounter"]))
