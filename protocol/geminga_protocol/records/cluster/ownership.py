"""The ownership of a bundle: an ephemeral node, whose creator owns the bundle while it lives.

Facts: ``NamespaceEphemeralData`` of Apache Pulsar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from geminga_protocol.records.cluster.brokers import AdvertisedListener
from geminga_protocol.records.encodings.json_records import JsonRecord

OWNERSHIP_PATH = "/namespace"


# The node of a bundle, as upstream writes it (without line breaks):
#
#     {"nativeUrl":"pulsar://host:6650","httpUrl":"http://host:8080",
#      "disabled":false,"advertisedListeners":{}}
#
# Its creation is the acquisition: of several brokers that create the ephemeral node at once,
# ZooKeeper lets one succeed. The node ends with the session of its creator, by itself.
@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOwner(JsonRecord):
    """The addresses at which the owner serves clients (``native``) and administrators (``http``).

    With ``disabled`` the owner is about to unload the bundle: lookups must not return it.
    """

    native_url: str | None = None
    native_url_tls: str | None = None
    http_url: str | None = None
    http_url_tls: str | None = None
    # Only Java brokers write True: they do so before they close the topics of the bundle, and
    # delete the node when these are closed. Until then no other broker can create it.
    disabled: bool = False
    advertised_listeners: Mapping[str, AdvertisedListener] = field(default_factory=dict)


def ownership_path(namespace: str, bundle: str) -> str:
    """The node of a bundle; ``namespace`` is ``tenant/name``, ``bundle`` ``0x…_0x…``."""
    return f"{OWNERSHIP_PATH}/{namespace}/{bundle}"
