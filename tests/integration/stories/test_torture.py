"""Nothing confirmed is lost or overtaken while parts of a cluster are killed, stand still, or lose
what they had not synced.

The small sizes; ``python -m tests.torture`` runs the same for half an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.integration.processes.cluster_process import ClusterProcess, StandaloneProcess
from tests.torture.evidence.sent import MessagesLost
from tests.torture.harm.killer import TARGETS
from tests.torture.harm.links import Cut
from tests.torture.harm.wires import Wires
from tests.torture.ordeals.geo import LOSS, NAMES, GeoSiege, besiege_clusters, three_clusters
from tests.torture.ordeals.siege import (
    CLUSTER_OPTIONS,
    CLUSTER_PARTS,
    CLUSTER_TOPICS,
    FRAGILE,
    OPTIONS,
    WIRED,
    Siege,
    besiege,
)
from tests.torture.ordeals.text_passage import Ordeal, torture

StartStandalone = Callable[..., StandaloneProcess]


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_overtaken_while_broker_and_bookie_are_killed(
    start_standalone: StartStandalone, tmp_path: Path
) -> None:
    ordeal = Ordeal(
        lines=60_000, text_bytes=2_000_000, strikes=len(TARGETS), seed=20, send_timeout_s=120
    )
    outcome = torture(start_standalone(), ordeal, tmp_path)
    assert outcome.text.lines >= ordeal.lines
    assert outcome.subscriber.digest == outcome.reader.digest == outcome.text.digest
    assert outcome.kills == {"broker": 5, "bookie": 3}, "every target is struck once"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_nothing_confirmed_is_lost_while_any_of_four_bookies_and_the_broker_go(
    start_standalone: StartStandalone,
) -> None:
    siege = Siege(seconds=6.0, seed=23, pause_s_max=2.0)
    outcome = besiege(partial(start_standalone, *OPTIONS), siege)
    assert outcome.confirmed == outcome.sent > 1000
    assert outcome.strikes


@pytest.mark.full
@pytest.mark.timeout(600)
def test_nothing_confirmed_is_lost_when_the_power_goes(start_standalone: StartStandalone) -> None:
    siege = Siege(seconds=6.0, seed=11, pause_s_max=2.0, has_power_cuts=True)
    outcome = besiege(partial(start_standalone, *OPTIONS, module=FRAGILE), siege)
    assert outcome.confirmed == outcome.sent > 1000
    assert any("power" in what for what in outcome.strikes)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_nothing_confirmed_is_lost_while_brokers_take_over_from_each_other(
    start_cluster: Callable[..., ClusterProcess],
) -> None:
    """Behind two proxies: any broker, bookie, proxy and ZooKeeper may go, stand still until another
    broker has its topics, or be parted from ZooKeeper, in one direction or in both."""
    siege = Siege(
        seconds=60.0, seed=7, parts=CLUSTER_PARTS, topics=CLUSTER_TOPICS, pause_s_max=12.0
    )
    with Wires(CLUSTER_PARTS.brokers) as wires:
        options = (*CLUSTER_OPTIONS, *wires.options)
        start = partial(start_cluster, *options, brokers=3, bookies=4, proxies=2, module=WIRED)
        outcome = besiege(start, siege, wires)
    assert outcome.confirmed == outcome.sent > 1000
    assert any(what.startswith("broker") for what in outcome.strikes)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_power_cuts_take_what_was_never_synced(start_standalone: StartStandalone) -> None:
    """Else the test above would prove nothing."""
    siege = Siege(seconds=0.1, seed=0, pause_s_max=2.0, has_power_cuts=True, read_timeout_ms=10_000)
    with pytest.raises(MessagesLost):
        besiege(partial(start_standalone, *OPTIONS, "--no-sync", module=FRAGILE), siege)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_three_clusters_have_each_message_once_whatever_is_killed_and_cut(tmp_path: Path) -> None:
    """Any part of each, each as a whole, and the links between them."""
    with three_clusters(tmp_path) as clusters:
        outcome = besiege_clusters(clusters, GeoSiege(seconds=60.0, seed=4, pause_s_max=10.0))
    assert outcome.held == dict.fromkeys(NAMES, outcome.sent)
    assert outcome.sent > 1000
    assert outcome.strikes[LOSS] >= 1
    assert outcome.cuts


@pytest.mark.full
@pytest.mark.timeout(600)
def test_clusters_that_do_not_deduplicate_have_messages_twice(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    siege = GeoSiege(
        seconds=20.0, seed=4, pause_s_max=2.0, cuts=(Cut.DYING,), is_deduplicated=False
    )
    with three_clusters(tmp_path) as clusters, pytest.raises(MessagesLost, match="repeat"):
        besiege_clusters(clusters, siege)
