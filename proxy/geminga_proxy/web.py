"""REST through the proxy.

Requests below ``/admin`` and ``/lookup`` are forwarded to brokers, those about functions to
functions workers; ``/metrics`` and ``/health`` are the proxy's own. Any broker answers any request,
or redirects to the broker that does. Clients cannot reach that one, so the proxy follows redirects.
"""

from __future__ import annotations

from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_runtime.network import Network
from geminga_server.http.forwarding import TO_WORKERS, Forwarder, ForwardingLimits, refuse
from geminga_server.http.server import AsgiApp, Receive, Scope, Send

# Upstream's proxy forwards the same prefixes.
FORWARDED = ("/admin", "/lookup")
# Brokers that one request is tried at: where so many cannot be reached, the next will not help.
BROKERS_TRIED_MAX = 5


class Forwarding(Forwarder):
    """An ASGI application that forwards requests; ``own`` answers all others."""

    def __init__(
        self, own: AsgiApp, brokers: Brokers, network: Network, config: ProxyConfig
    ) -> None:
        limits = ForwardingLimits(
            connect_timeout_s=config.targets.broker_proxy_connect_timeout_s,
            silence_timeout_s=config.web.http_proxy_timeout_s,
            replay_bytes_max=config.web.http_input_replay_bytes_max,
        )
        # ``network`` secures all connections or none, so only redirects with this scheme are
        # followed.
        super().__init__(network, limits, scheme="https" if config.broker_tls.enabled else "http")
        self._own = own
        self._brokers = brokers
        self._requests_max = config.web.concurrent_http_requests_max
        self._worker_urls = config.worker_web_urls
        # Which URL is tried first, counted on with each request.
        self._turn = 0
        # Requests that are being forwarded.
        self._open_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if not path.startswith(FORWARDED):
            await self._own(scope, receive, send)
            return
        # Of all paths together.
        if self._open_requests >= self._requests_max:
            await refuse(send, 503, "too many requests are being forwarded: try again")
            return
        # As it is now: the request keeps these URLs, whatever becomes of the brokers meanwhile.
        urls = self._brokers.view.web_urls
        if self._worker_urls and path.startswith(TO_WORKERS):
            urls = self._worker_urls
        if not urls:
            await refuse(send, 503, "no broker is there that answers REST")
            return
        # Brokers take turns, and so do functions workers. One counter for both lists: it only
        # spreads where a request begins.
        self._turn = (self._turn + 1) % len(urls)
        in_turn = [*urls[self._turn :], *urls[: self._turn]]
        # Until the whole answer has been sent: a slow client counts as long as it reads. From here
        # to the ``finally`` there is no way out that is not counted.
        self._open_requests += 1
        try:
            await self.forward(scope, receive, send, in_turn[:BROKERS_TRIED_MAX])
        finally:
            self._open_requests -= 1
