"""Namespaces for tests: created in milliseconds, deleted in the background."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit
from warnings import warn

TENANT = "public"
TIMEOUT_S = 30.0
NAMESPACES = "/admin/v2/namespaces"
TOPICS = "/admin/v2/persistent"
# The status with which a cluster refuses to delete a namespace that has topics.
# ``forceDeleteNamespaceAllowed`` is off by default, as in Pulsar.
NOT_ALLOWED = 405


class RestRefused(AssertionError):
    """The cluster refused a request of a fixture."""

    def __init__(self, method: str, path: str, status: int, reason: str) -> None:
        super().__init__(f"{method} {path}: {status} {reason}")
        self.status = status


class RestUnreachable(AssertionError):
    """No cluster answers where the fixture looks for one."""


class Namespaces:
    """The namespaces of a test session in the cluster whose REST is at ``web_url``.

    With ``are_deleted``, a namespace that was given back is deleted in a thread, with its topics;
    leaving the context waits for that.
    """

    def __init__(self, web_url: str, *, are_deleted: bool) -> None:
        self._web_url = web_url
        self._are_deleted = are_deleted
        # Kept open: a new one for each namespace would double the 2 ms that creating it takes. Used
        # by the thread of the tests alone.
        self._connection = _connect(web_url)
        # One thread: deletions must not slow down the tests that run meanwhile. They queue up
        # there, and end with ``__exit__`` at the latest.
        self._thread = ThreadPoolExecutor(1, "geminga namespaces")
        self._deletions: dict[str, Future[None]] = {}

    def create(self) -> str:
        """Create a namespace; returns ``tenant/namespace``. Raises ``RestRefused``."""
        # Random: tests of several processes, and of former runs, share a cluster.
        name = f"{TENANT}/test-{uuid.uuid4().hex[:16]}"
        _request(self._connection, "PUT", f"{NAMESPACES}/{name}")
        return name

    def give_back(self, name: str) -> None:
        """Delete a namespace that no test uses any more, if namespaces are deleted."""
        if self._are_deleted:
            self._deletions[name] = self._thread.submit(delete, self._web_url, name)

    def __enter__(self) -> Self:
        # The first request loads code in the broker: no test should be slowed by that. It is also
        # the check of the URL, before any test has run.
        try:
            _request(self._connection, "GET", f"{NAMESPACES}/{TENANT}")
        except (OSError, HTTPException) as error:
            raise RestUnreachable(
                f"nothing answers REST at {self._web_url} ({error}): give the URL of the cluster's "
                "REST with --geminga-web-url"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        # Waits for the deletions that are still to come: a cluster that was there before keeps none
        # of our namespaces.
        self._thread.shutdown()
        for name, deletion in self._deletions.items():
            failure = deletion.exception()
            # A warning, since all tests have passed or failed by now.
            if failure is not None:
                warn(f"the namespace {name} was not deleted: {failure}", stacklevel=1)


def delete(web_url: str, name: str) -> None:
    """Delete a namespace and its topics.

    Raises ``RestRefused``, ``OSError``, ``HTTPException``.
    """
    # A connection of its own: this runs in another thread than the tests.
    with closing(_connect(web_url)) as connection:
        try:
            _request(connection, "DELETE", f"{NAMESPACES}/{name}?force=true")
        except RestRefused as refused:
            if refused.status != NOT_ALLOWED:
                raise
            # The cluster forbids to delete a namespace that has topics: these go first.
        else:
            return
        # Partitioned ones first, with their partitions: the second list then has the others.
        for kind, suffix in (("/partitioned", "/partitions"), ("", "")):
            for topic in json.loads(_request(connection, "GET", f"{TOPICS}/{name}{kind}")):
                path = f"{TOPICS}/{name}/{quote(topic.rpartition('/')[2], safe='')}{suffix}"
                _request(connection, "DELETE", f"{path}?force=true")
        _request(connection, "DELETE", f"{NAMESPACES}/{name}")


def _connect(web_url: str) -> HTTPConnection:
    # Python's own, and no library: the plugin must not bring packages into users' environments.
    url = urlsplit(web_url)
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    return kind(url.netloc, timeout=TIMEOUT_S)


def replicate(web_urls: Mapping[str, str]) -> None:
    """Replicate ``public/default`` between clusters: by their names, the URLs of their REST.

    With deduplication, so that each cluster stores a message once. Raises ``RestRefused``.
    """
    names = json.dumps(list(web_urls))
    for web_url in web_urls.values():
        with closing(_connect(web_url)) as connection:
            # The tenant first: a namespace is replicated only to clusters that its tenant may use.
            tenant = f'{{"allowedClusters": {names}}}'
            _request(connection, "POST", f"/admin/v2/tenants/{TENANT}", tenant)
            namespace = f"{NAMESPACES}/{TENANT}/default"
            _request(connection, "POST", f"{namespace}/deduplication", "true")
            _request(connection, "POST", f"{namespace}/replication", names)


def _request(connection: HTTPConnection, method: str, path: str, body: str | None = None) -> bytes:
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
    except (ConnectionError, HTTPException):
        # The broker has closed a connection that was idle for long. Repeating a request does no
        # harm. ``http.client`` connects anew by itself after ``close``.
        connection.close()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
    # In any case: a connection takes the next request only after that.
    content = answer.read()
    if answer.status >= 300:
        raise RestRefused(method, path, answer.status, content.decode(errors="replace"))
    return content
