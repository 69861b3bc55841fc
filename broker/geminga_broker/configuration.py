"""The broker's settings under the names that Pulsar's ``ServiceConfiguration`` has for them.

``GET /admin/v2/brokers/configuration/runtime`` answers them: each setting that declares its
``Upstream`` name, in upstream's unit; and settings that upstream expresses differently. Settings
that only one of the two has are left out. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from geminga_broker.config import BrokerConfig
from geminga_server.config import settings_of

# Features that upstream can switch on or off, and this broker always has, or does not have.
FIXED = {
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    "authenticationEnabled": False,
    "authorizationEnabled": False,
    "transactionCoordinatorEnabled": False,
    "webSocketServiceEnabled": False,
}


def runtime_configuration(config: BrokerConfig) -> dict[str, str]:
    """The settings by upstream's names; ``config`` has the ports and limits that were chosen."""
    shown: dict[str, object] = {}
    for each in settings_of(BrokerConfig).values():
        # Settings of ours alone have no name there, and would only confuse upstream's tools.
        if each.upstream is None:
            continue
        value, unit = each.value_in(config), each.upstream.unit
        # Values that are no numbers have the unit 1; a negative number means "no limit" in any.
        # ``unit`` is how many of our units one of upstream's is: 60 for minutes, 0.001 for
        # milliseconds.
        if unit != 1 and cast("float", value) >= 0:
            value = cast("float", value) / unit
        shown[each.upstream.name] = value
    # Upstream has a type beside the number, and no number for topics without partitions.
    partitions = shown.pop("defaultNumPartitions")
    if partitions:
        shown |= {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": partitions}
    else:
        shown["allowAutoTopicCreationType"] = "non-partitioned"
    # What upstream writes differently, or answers though it cannot be set here.
    store = config.shared_zookeeper
    shown |= FIXED | {
        "metadataStoreUrl": f"zk:{config.zookeeper}",
        "configurationMetadataStoreUrl": f"zk:{store}" if store else "",
        "metadataStoreSessionTimeoutMillis": config.zookeeper_session_timeout_s * 1000,
        "advertisedAddress": config.advertised_host,
        "advertisedListeners": ",".join(config.listeners.advertised_listeners),
        "bindAddresses": ",".join(config.listeners.bind_addresses),
        "brokerServicePort": _optional(config.ports.get("port")),
        "webServicePort": _optional(config.ports.get("web_port")),
        "brokerServicePortTls": _optional(config.ports.get("port_tls")),
        "webServicePortTls": _optional(config.ports.get("web_port_tls")),
        "tlsEnabled": config.tls.is_on,
        "bookkeeperTLSClientAuthentication": bool(config.bookkeeper_tls.trust_file),
        "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": (
            config.policies.inactivity.unused_s_max or ""
        ),
    }
    return {name: _text(value) for name, value in shown.items()}


def _optional(number: int | None) -> str:
    """How Java prints a number that may be missing."""
    return "Optional.empty" if number is None else f"Optional[{number}]"


def _text(value: object) -> str:
    """A value as Java prints it; a number without a fraction is printed as an integer."""
    # Before numbers: a bool is an int, too.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # Rounded, as seconds become milliseconds or minutes by division; Java prints no digits of
        # noise.
        return f"{round(value, 6):.15g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
