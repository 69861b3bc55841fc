"""What the proxy knows of the brokers, as their records in ZooKeeper or its settings say it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from geminga_protocol.records.cluster.brokers import LocalBrokerData
from geminga_proxy.addresses.targets import Target
from geminga_proxy.errors import TargetRefused


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The brokers that are known now."""

    # Where the proxy sends what clients ask for (lookups, partitions, schemas).
    service_urls: tuple[str, ...] = ()
    # Where it sends REST requests. In the order of the brokers' ids, so that two views of the same
    # brokers are equal.
    web_urls: tuple[str, ...] = ()
    # Every address of a living broker, of any of its listeners; None where they are not known
    # because the settings name a balancer.
    targets: frozenset[Target] | None = None

    @classmethod
    def of_records(cls, records: Iterable[LocalBrokerData], *, is_tls: bool = False) -> BrokerView:
        """The view of the brokers that registered themselves with ``records``.

        With ``is_tls`` their addresses with TLS count, and only those.
        """
        service_urls: list[str] = []
        web_urls: list[str] = []
        targets: set[Target] = set()
        for record in records:
            # Clients that look up through the proxy are told the owner's own address, but one of
            # its listeners' is accepted as well.
            listeners = record.advertised_listeners.values()
            if is_tls:
                service_url, web_url = record.pulsar_service_url_tls, record.web_service_url_tls
                advertised = [each.broker_service_url_tls for each in listeners]
            else:
                service_url, web_url = record.pulsar_service_url, record.web_service_url
                advertised = [each.broker_service_url for each in listeners]
            # A broker that does not serve the protocol has no URL for it, and is not asked.
            if service_url:
                service_urls.append(service_url)
            if web_url:
                web_urls.append(web_url)
            # ``None`` and "" are left out: the broker, or the listener, does not serve that scheme.
            for url in filter(None, (service_url, *advertised)):
                # No client can ask for an address that is malformed: it is left out.
                with suppress(TargetRefused):
                    targets.add(Target.parse(url))
        return cls(tuple(service_urls), tuple(web_urls), frozenset(targets))
