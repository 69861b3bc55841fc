"""The broker's settings under the names that Pulsar's ``ServiceConfiguration`` has for them.

What ``GET /admin/v2/brokers/configuration/runtime`` answers: each setting that says what it is
called ``Upstream``, in upstream's unit, and what upstream says in other words. What only one of the
two has is not there. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from geminga_broker.config import BrokerConfig
from geminga_server.config import settings_of

# What upstream can be told to do or not, and this broker always does, or has not.
FIXED = {
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    "authenticationEnabled": False,
    "authorizationEnabled": False,
    "transactionCoordinatorEnabled": False,
    "webSocketServiceEnabled": False,
}


def runtime_configuration(config: BrokerConfig) -> dict[str, str]:
    """Upstream's names and values; ``config`` has the ports and the limits that were chosen."""
    told: dict[str, object] = {
        each.upstream.name: _in_units(each.value_in(config), each.upstream.unit)
        for each in settings_of(BrokerConfig).values()
        if each.upstream is not None
    }
    told |= FIXED | {
        "metadataStoreUrl": f"zk:{config.zookeeper}",
        "configurationMetadataStoreUrl": f"zk:{store}"
        if (store := config.shared_zookeeper)
        else "",
        "metadataStoreSessionTimeoutMillis": config.zookeeper_session_timeout_s * 1000,
        "advertisedAddress": config.advertised_host,
        "advertisedListeners": ",".join(config.listeners.advertised_listeners),
        "bindAddresses": ",".join(config.listeners.bind_addresses),
        "brokerServicePort": _optional(config.ports.get("port")),
        "webServicePort": _optional(config.ports.get("web_port")),
        "brokerServicePortTls": _optional(config.ports.get("port_tls")),
        "webServicePortTls": _optional(config.ports.get("web_port_tls")),
        "tlsEnabled": config.tls.is_on,
        "bookkeeperTLSClientAuthentication": config.bookkeeper_tls.is_on,
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": (
            config.policies.inactivity.unused_s_max or ""
        ),
        **_auto_creation(told.pop("defaultNumPartitions")),
    }
    return {name: _words(value) for name, value in told.items()}


def _optional(number: int | None) -> str:
    """Java's words for a number that need not be there."""
    return "Optional.empty" if number is None else f"Optional[{number}]"


def _auto_creation(partitions: object) -> dict[str, object]:
    """Upstream has a type beside the number, which says nothing of topics without partitions."""
    if not partitions:
        return {"allowAutoTopicCreationType": "non-partitioned"}
    return {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": partitions}


def _in_units(value: object, unit: float) -> object:
    """A negative number means "no limit" in any unit."""
    if unit == 1 or cast("float", value) < 0:
        return value
    return cast("float", value) / unit


def _words(value: object) -> str:
    """A value as Java prints it; a number without a fraction is a whole one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{round(value, 6):.15g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
