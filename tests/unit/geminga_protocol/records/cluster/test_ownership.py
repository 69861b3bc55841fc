"""A bundle's owner is written as upstream's brokers write it."""

from __future__ import annotations

from geminga_protocol.records.cluster.brokers import AdvertisedListener
from geminga_protocol.records.cluster.ownership import BundleOwner, ownership_path


def test_an_owner_is_the_recorded_one() -> None:
    owner = BundleOwner(native_url="pulsar://127.0.0.1:26650", http_url="http://127.0.0.1:28080")
    assert owner.encode() == (
        b'{"nativeUrl":"pulsar://127.0.0.1:26650","httpUrl":"http://127.0.0.1:28080",'
        b'"disabled":false,"advertisedListeners":{}}'
    )


def test_advertised_listeners_come_back() -> None:
    listener = AdvertisedListener(broker_service_url="pulsar://h:1", broker_https_url="https://h:2")
    owner = BundleOwner(native_url="pulsar://h:1", advertised_listeners={"internal": listener})
    assert BundleOwner.decode(owner.encode()).advertised_listeners == {"internal": listener}


def test_ownership_stands_under_the_bundle() -> None:
    path = ownership_path("acme/shop", "0x00000000_0x40000000")
    assert path == "/namespace/acme/shop/0x00000000_0x40000000"
