"""A part's metrics for Prometheus, and the small web application of parts that have no other.

prometheus_client is imported at the first scrape. A part counts in plain attributes and registers
functions that make metric families of them; nothing on a hot path knows of Prometheus.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service
from geminga_server.authorization import ANONYMOUS, Action, Authorize, Resource, allow_all
from geminga_server.errors import NotAuthorized
from geminga_server.http.server import AsgiApp, Receive, Scope, Send

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# A health check that takes longer has failed.
HEALTH_TIMEOUT_S = 5.0
# Seconds between measurements of the event loop's lag.
LAG_PERIOD_S = 1.0

Collect = Callable[[], "Iterable[Metric]"]
CheckHealth = Callable[[], Awaitable[None]]
# A name, labels and a value.
Sample = tuple[str, Mapping[str, str], float]


class PartMetrics:
    """All metric families of the part ``part``: those registered here, and those of its process."""

    def __init__(self, part: str) -> None:
        self.part = part
        # Called for families at every scrape, on the event loop: they must be quick. Parts append
        # theirs, and remove those of what is closed.
        self.collectors: list[Collect] = []
        # Made at the first scrape, with the import of prometheus_client.
        self._registry: CollectorRegistry | None = None

    def text(self) -> bytes:
        """All families, in Prometheus's text format 0.0.4."""
        from prometheus_client import generate_latest  # noqa: PLC0415 - 50 ms, see above

        # In one go, without giving the event loop back: fit for some hundred samples. Where there
        # are many, ``exposition`` writes them in pieces.
        return generate_latest(self.registry)

    @property
    def registry(self) -> CollectorRegistry:
        """The registry, for code that uses prometheus_client itself."""
        if self._registry is None:
            from prometheus_client import (  # noqa: PLC0415 - as above
                CollectorRegistry,
                GCCollector,
                ProcessCollector,
            )

            # Without describing: that would call all collectors once more, at registration.
            self._registry = CollectorRegistry(auto_describe=False)
            # Not the default registry: two parts in one process, as in tests, must not mix.
            ProcessCollector(registry=self._registry)
            GCCollector(registry=self._registry)
            # This object is a collector, too: see ``collect``.
            self._registry.register(self)
        return self._registry

    def collect(self) -> Iterable[Metric]:
        """The registered families. prometheus_client calls this at a scrape."""
        for collect in self.collectors:
            yield from collect()


class LoopLag(Service):
    """Measures how late the event loop runs its timers; a gauge shows the worst since the last
    scrape."""

    def __init__(self, metrics: PartMetrics) -> None:
        super().__init__()
        self._metrics = metrics
        # Since the last scrape.
        self.worst_s = 0.0

    async def _open(self, stack: AsyncExitStack) -> None:
        self._metrics.collectors.append(self._collect)
        stack.callback(self._metrics.collectors.remove, self._collect)
        self.spawn(self._measure(), name="loop lag")

    async def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # A timer that fires late shows how long callbacks before it held the loop.
            due_s = loop.time() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self.worst_s = max(self.worst_s, loop.time() - due_s)

    def _collect(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - as above

        # Each scrape begins anew. With two scrapers, each sees only a part of the time.
        worst_s, self.worst_s = self.worst_s, 0.0
        yield GaugeMetricFamily(
            f"geminga_{self._metrics.part}_event_loop_lag_seconds",
            "How late the event loop ran what was due, at worst since the last scrape.",
            value=worst_s,
        )


def metric(name: str, kind: str, samples: Iterable[Sample], about: str) -> Metric:
    """A family for prometheus_client, whose samples have the names that dashboards know.

    ``kind`` is Prometheus's type. A counter whose name does not end in ``_total`` is announced as
    ``unknown``, since prometheus_client would announce it under another name.
    """
    from prometheus_client.core import Metric  # noqa: PLC0415 - as above

    # The writer of the text appends ``_total`` to a counter's name by itself.
    family_name = name
    if kind == "counter":
        family_name = name.removesuffix("_total")
        kind = "unknown" if family_name == name else kind
    family = Metric(family_name, about, kind)
    for sample, labels, value in samples:
        family.add_sample(sample, dict(labels), value)
    return family


def part_app(
    metrics: PartMetrics,
    *,
    check_health: CheckHealth,
    resource: Resource,
    authorize: Authorize = allow_all,
) -> AsgiApp:
    """An ASGI application with ``/metrics/`` and ``/health``.

    ``/metrics`` redirects there as a Pulsar broker's does. ``/health`` is 200, or 503 with the
    reason when ``check_health`` raises a ``GemingaError`` or takes too long.
    """

    async def answer(path: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        match path:
            case "/metrics":
                return 302, [(b"location", b"/metrics/")], b""
            case "/metrics/":
                return 200, [(b"content-type", CONTENT_TYPE.encode())], metrics.text()
            case "/health":
                try:
                    async with asyncio.timeout(HEALTH_TIMEOUT_S):
                        # On the event loop: a loop that is held answers nothing, which a prober
                        # takes for ill as well.
                        await check_health()
                except GemingaError as error:
                    return _json(503, {"status": "unhealthy", "reason": str(error)})
                except TimeoutError:
                    reason = f"the check took longer than {HEALTH_TIMEOUT_S:g} s"
                    return _json(503, {"status": "unhealthy", "reason": reason})
                return _json(200, {"status": "ok"})
            case _:
                return _json(404, {"reason": f"nothing at {path}; see /metrics and /health"})

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        principal = scope.get("state", {}).get("principal") or ANONYMOUS
        # Before the path is looked at: a client without rights does not learn what exists.
        try:
            await authorize(principal, Action.READ, resource)
            if scope["method"] in ("GET", "HEAD"):
                status, headers, body = await answer(scope["path"])
            else:
                status, headers, body = _json(405, {"reason": "only GET is answered here"})
        except NotAuthorized as error:
            status, headers, body = _json(403, {"reason": str(error)})
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        # The length of a HEAD answer is that of the body it leaves out (RFC 9110, 9.3.2).
        body = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": body})

    return app


def _json(status: int, content: object) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    return status, [(b"content-type", b"application/json")], json.dumps(content).encode()
