"""REST through the proxy: ``/admin`` and ``/lookup`` are forwarded to brokers, those of functions
to their workers; ``/metrics`` and ``/health`` are the proxy's own.

Any broker answers any request, or redirects to the one that does. Clients cannot reach that one, so
the proxy follows redirects.
"""

from __future__ import annotations

from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.errors import NoBroker
from geminga_runtime.network import Network
from geminga_server.http.forwarding import TO_WORKERS, Forwarder, ForwardingLimits, refuse
from geminga_server.http.server import AsgiApp, Receive, Scope, Send

FORWARDED = ("/admin", "/lookup")
BROKERS_TRIED_MAX = 5


class Forwarding(Forwarder):
    """An ASGI application that forwards; what it does not forward is ``own``'s to answer."""

    def __init__(
        self, own: AsgiApp, brokers: Brokers, network: Network, config: ProxyConfig
    ) -> None:
        limits = ForwardingLimits(
            connect_timeout_s=config.targets.broker_proxy_connect_timeout_s,
            silence_timeout_s=config.web.http_proxy_timeout_s,
            replay_bytes_max=config.web.http_input_replay_bytes_max,
        )
        super().__init__(network, limits, scheme="https" if config.broker_tls.enabled else "http")
        self._own = own
        self._brokers = brokers
        self._requests_max = config.web.concurrent_http_requests_max
        self._worker_urls = config.worker_web_urls
        self._turn = 0
        self._open_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"]
        if not path.startswith(FORWARDED):
            await self._own(scope, receive, send)
            return
        if self._open_requests >= self._requests_max:
            await refuse(send, 503, "too many requests are being forwarded: try again")
            return
        self._open_requests += 1
        try:
            await self.forward(scope, receive, send, self._urls_for(path)[:BROKERS_TRIED_MAX])
        except NoBroker as error:
            await refuse(send, 503, str(error))
        finally:
            self._open_requests -= 1

    def _urls_for(self, path: str) -> list[str]:
        """Whom to ask, in this order: those that are one another's like take turns."""
        urls = self._brokers.view.web_urls
        if self._worker_urls and path.startswith(TO_WORKERS):
            urls = self._worker_urls
        if not urls:
            raise NoBroker("no broker is there that answers REST")
        self._turn = (self._turn + 1) % len(urls)
        return [*urls[self._turn :], *urls[: self._turn]]
