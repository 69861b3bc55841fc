"""What a broker says of its settings over REST, and which it lets be changed while it runs."""

from __future__ import annotations

from tests.differential.scenario import Wanted, scenario
from tests.differential.world import World

from geminga_broker.config import BrokerConfig
from geminga_server.config import settings_of

PATH = "/admin/v2/brokers/configuration"
# What depends on the machine or on where the broker stands; and what has another default here
# (tests/unit/geminga_broker/test_configuration.py says why).
NOT_COMPARED = {
    "advertisedAddress",
    "advertisedListeners",
    "bindAddress",
    "bindAddresses",
    "brokerServicePort",
    "webServicePort",
    "brokerMaxConnections",
    "loadBalancerEnabled",
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle",
    "loadBalancerSheddingConditionHitCountThreshold",
    "maxUnloadBundleNumPerShedding",
    "managedLedgerCacheSizeMB",
    "dispatcherMaxReadSizeBytes",
    "dispatcherMaxReadBatchSize",
    "subscriptionTypesEnabled",
    "brokerDeleteInactiveTopicsEnabled",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
    "defaultNumPartitions",
    "tlsHostnameVerificationEnabled",
}
NAMES = {each.upstream.name for each in settings_of(BrokerConfig).values() if each.upstream}
COMPARED = sorted(NAMES - NOT_COMPARED)


@scenario()
async def the_settings_that_a_broker_runs_with(world: World) -> None:
    await world.rest(
        "GET", f"{PATH}/runtime", pick=lambda all_: {name: all_[name] for name in COMPARED}
    )


@scenario()
async def the_form_of_the_settings(world: World) -> None:
    await world.rest(
        "GET",
        f"{PATH}/runtime",
        pick=lambda all_: sorted({type(each).__name__ for each in all_.values()}),
    )
    await world.rest("GET", PATH, pick=lambda names: type(names).__name__)
    await world.rest("GET", f"{PATH}/values")


@scenario()
async def changing_what_cannot_be_changed(world: World) -> None:
    await world.rest("POST", f"{PATH}/brokerMaxConnections/5")
    await world.rest("POST", f"{PATH}/noSuchSetting/5")
    await world.rest("DELETE", f"{PATH}/noSuchSetting")


@scenario(wanted=[Wanted("some", "none", "a setting is said to change only where it does")])
async def what_can_be_changed_while_a_broker_runs(world: World) -> None:
    await world.rest("GET", PATH, pick=lambda names: "some" if names else "none")
