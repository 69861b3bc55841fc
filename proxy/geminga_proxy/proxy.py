"""The proxy put together: what it is made of, and what opens and closes in which order.

Everything outside (network, brokers, clock) comes in through the constructor, so that the same
proxy runs as a process and inside a simulation.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from geminga_proxy.addresses.targets import Target, TargetRules
from geminga_proxy.brokers import Brokers
from geminga_proxy.config import ProxyConfig
from geminga_proxy.connection import ClientConnection, ConnectionContext
from geminga_proxy.errors import NoBroker
from geminga_proxy.lookups import Lookups
from geminga_proxy.splice import REVIEW_S, Splices
from geminga_runtime.network import Listener, Network
from geminga_runtime.service import Service
from geminga_server.connection_limits import ConnectionLimits

log = logging.getLogger(__name__)

# When the proxy ends, brokers get so long to release the clients' producers and consumers. Spent
# once, for all splices together: a broker that is dead must not hold up the end of the proxy.
LET_GO_TIMEOUT_S = 1.0


class Proxy(Service):
    """One proxy. Entered, it serves; left, it hands clients' connections back to their brokers."""

    def __init__(
        self,
        config: ProxyConfig,
        *,
        brokers: Brokers,
        network: Network,
        tls_network: Network | None = None,
    ) -> None:
        """``network`` listens for plain connections and opens those to brokers, with TLS where the
        settings say so; ``tls_network`` listens for clients' connections with TLS."""
        super().__init__()
        # The two come from the same settings, by two ways. The listener for TLS is made from
        # ``tls_network``, the announced address from the config.
        assert not config.tls.is_on or tls_network is not None, "TLS would be announced, not served"
        self.config = config
        self._network = network
        self._tls_network = tls_network
        # For plain connections. Nothing asks for the port of the other one.
        self._listener: Listener | None = None
        self.splices = Splices(config.targets.broker_proxy_read_timeout_s)
        self.lookups = Lookups(brokers, network, config)
        self.context = ConnectionContext(
            config=config,
            network=network,
            brokers=brokers,
            lookups=self.lookups,
            splices=self.splices,
            limits=ConnectionLimits(config.connections),
            rules=rules_of(config, brokers),
            # What works for a connection is a task of the proxy, which ends with the proxy.
            spawn=lambda work, name: self.spawn(work, name=name),
        )

    @property
    def port(self) -> int:
        """The port of plain connections, once the proxy is open."""
        assert self._listener is not None, "the proxy is not open"
        return self._listener.port

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self.context.limits.open_count

    async def check_health(self) -> None:
        """Raise ``NoBroker`` where no broker is known, so that no client can be served."""
        # Of the view alone: to ask brokers would make health as slow as they are. While ZooKeeper
        # is away, the brokers of the last view count as living.
        if not self.context.brokers.view.service_urls:
            raise NoBroker("no broker is there")

    async def _open(self, stack: AsyncExitStack) -> None:
        # First, as lookups are asked by connections: closed last, when no connection is left to
        # ask.
        await stack.enter_async_context(self.lookups)
        # Closed in the opposite order: listeners first, then clients, last the way to brokers.
        stack.push_async_callback(self._close_connections)
        config = self.config
        self._listener = await self._listen(stack, self._network, config.port)
        if self._tls_network is not None:
            await self._listen(stack, self._tls_network, config.port_tls)
        # Tasks end before anything else is closed, so no review runs while the splices are ended.
        self.spawn_every(REVIEW_S, self.splices.review, name="review splices")

    async def _listen(self, stack: AsyncExitStack, network: Network, port: int) -> Listener:
        listener = await network.listen(
            lambda: ClientConnection(self.context), self.config.bind_address, port
        )
        stack.push_async_callback(listener.close)
        return listener

    async def _close_connections(self) -> None:
        """Close the brokers' sides of all splices, then the clients'.

        A client comes back through another proxy at once, and must find its producer's name and its
        exclusive subscription free.
        """
        # Those that are not joined have nothing at a broker. A copy: ``close`` takes the connection
        # out of ``open``.
        for connection in list(self.context.open):
            connection.close()
        # Copied: each takes itself out of the dict when it ends. Joined ones are in ``splices``,
        # and not in ``context.open``: no client is in both.
        splices = list(self.splices.open)
        try:
            async with asyncio.timeout(LET_GO_TIMEOUT_S):
                # A broker that has closed its side has released the names of the client's
                # producers.
                await asyncio.gather(*(splice.leave_broker() for splice in splices))
        except TimeoutError:
            log.info("brokers did not close all connections of clients in time")
        # Also those of brokers that did not close in time: their clients are cut off, and these
        # brokers find the connection gone.
        for splice in list(self.splices.open):
            splice.end()


def rules_of(config: ProxyConfig, brokers: Brokers) -> TargetRules:
    """Which addresses clients may be connected to, by the settings.

    Where the settings name brokers by URLs, and no ports, the ports in the URLs are allowed: the
    other brokers of the cluster listen on the same.
    """
    ports = frozenset(config.targets.broker_proxy_allowed_target_ports)
    # ``view.targets`` is None where the settings name the brokers: with ZooKeeper the living
    # brokers' addresses are the rule, and ports come on top of that.
    if not ports and brokers.view.targets is None:
        ports = frozenset(Target.parse(url).port for url in brokers.view.service_urls)
    return TargetRules(config.targets.broker_proxy_allowed_host_names, ports)
