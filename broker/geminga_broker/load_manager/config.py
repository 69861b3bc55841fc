"""What the load manager keeps to: which brokers count as overloaded, when bundles are moved and
split, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from geminga_server.config import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadManagerConfig:
    """The settings of the load manager. All brokers of a cluster should have the same: whichever
    leads follows its own."""

    load_balancer_enabled: Annotated[bool, Upstream("loadBalancerEnabled")] = True
    """The leader places bundles by load, moves and splits them. Else they are spread over the
    brokers by hash, whatever these have to do."""
    load_balancer_shedding_enabled: Annotated[bool, Upstream("loadBalancerSheddingEnabled")] = True
    """Bundles are moved from brokers that have much more to do than others."""
    load_balancer_shedding_interval_s: Annotated[
        float, Gt(0), Upstream("loadBalancerSheddingIntervalMinutes", unit=60)
    ] = 60.0
    """How often the leader looks whether bundles should be moved."""
    load_balancer_shedding_grace_s: Annotated[
        float, Ge(0), Upstream("loadBalancerSheddingGracePeriodMinutes", unit=60)
    ] = 30 * 60.0
    """How long a bundle stays where it was moved to."""
    load_balancer_shedding_hits: Annotated[
        int, Gt(0), Upstream("loadBalancerSheddingConditionHitCountThreshold")
    ] = 2
    """How many times in a row brokers must be found unequal before bundles are moved."""
    load_balancer_shedding_percent: Annotated[
        float, Gt(0), Upstream("loadBalancerBrokerThresholdShedderPercentage")
    ] = 10.0
    """How far the load of a broker may be from the average of all."""
    load_balancer_shedding_rate_min: Annotated[float, Ge(0)] = 1000.0
    """By how much the loads of two brokers must differ before a bundle is moved: messages a second,
    where a KiB of payload counts as one more, a topic or a client as one too."""
    load_balancer_shedding_brokers_max: Annotated[
        int, Gt(0), Upstream("loadBalancerMaxNumberOfBrokerSheddingPerCycle")
    ] = 10
    """From how many brokers bundles are moved at a time."""
    load_balancer_shedding_bundles_max: Annotated[
        int, Gt(0), Upstream("maxUnloadBundleNumPerShedding")
    ] = 100
    """How many bundles are moved at a time: clients of each look their topics up again."""
    # Upstream's loadBalancerSheddingExcludedNamespaces, which came after 4.0.
    load_balancer_shedding_excluded_namespaces: tuple[str, ...] = ()
    """Namespaces whose bundles are not moved by load."""
    load_balancer_overloaded_percent: Annotated[
        float, Gt(0), Upstream("loadBalancerBrokerOverloadedThresholdPercentage")
    ] = 85.0
    """A broker that uses more of its CPU gets no further bundles while others use less."""
    load_balancer_broker_topics_max: Annotated[
        int, Gt(0), Upstream("loadBalancerBrokerMaxTopics")
    ] = 50_000
    """A broker with more topics gets no further bundles while others have fewer."""
    load_balancer_arrivals_max: Annotated[int, Gt(0)] = 2_000
    """How many bundles a broker may be assigned that it has not reported yet. After a restart of
    all brokers further lookups are refused, and clients repeat them, until it has."""
    load_balancer_history_interval_s: Annotated[
        float, Gt(0), Upstream("loadBalancerResourceQuotaUpdateIntervalMinutes", unit=60)
    ] = 15 * 60.0
    """How often the leader writes down what bundles have to do, for the leader after it."""
    load_balancer_unload_timeout_s: Annotated[
        float, Gt(0), Upstream("namespaceBundleUnloadingTimeoutMs", unit=0.001)
    ] = 60.0
    """How long the owner of a bundle may take to hand it on."""
    load_balancer_auto_bundle_split_enabled: Annotated[
        bool, Upstream("loadBalancerAutoBundleSplitEnabled")
    ] = True
    """Bundles that have grown too large are split."""
    load_balancer_auto_unload_split_bundles_enabled: Annotated[
        bool, Upstream("loadBalancerAutoUnloadSplitBundlesEnabled")
    ] = True
    """The halves of a split bundle are placed anew, by their load."""
    load_balancer_split_interval_s: Annotated[
        float, Gt(0), Upstream("loadBalancerSplitIntervalMinutes", unit=60)
    ] = 60.0
    """How often the leader looks whether bundles should be split."""
    load_balancer_splits_max: Annotated[
        int, Gt(0), Upstream("loadBalancerMaxNumberOfBundlesToSplitPerCycle")
    ] = 10
    """How many bundles are split at a time."""
    load_balancer_bundle_topics_max: Annotated[
        int, Gt(0), Upstream("loadBalancerNamespaceBundleMaxTopics")
    ] = 1000
    """A bundle with more topics is split."""
    load_balancer_bundle_sessions_max: Annotated[
        int, Gt(0), Upstream("loadBalancerNamespaceBundleMaxSessions")
    ] = 1000
    """A bundle with more producers and consumers is split."""
    load_balancer_bundle_rate_max: Annotated[
        float, Gt(0), Upstream("loadBalancerNamespaceBundleMaxMsgRate")
    ] = 30_000.0
    """A bundle with more messages a second, in and out, is split."""
    load_balancer_bundle_bytes_max: Annotated[
        float, Gt(0), Upstream("loadBalancerNamespaceBundleMaxBandwidthMbytes", unit=1024 * 1024)
    ] = 100 * 1024 * 1024.0
    """A bundle with more bytes a second, in and out, is split."""
    load_balancer_namespace_bundles_max: Annotated[
        int, Gt(0), Upstream("loadBalancerNamespaceMaximumBundles")
    ] = 128
    """A namespace with so many bundles has none of them split."""
