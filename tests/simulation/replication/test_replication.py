"""Proves, over many seeds, that clusters which replicate a topic to each other end with the same
messages: each once, those of one cluster in its order, and nothing left to replicate.

Three clusters, each with one or two brokers, perhaps a proxy, and one to three bookies, replicate
to each other. All that can happen to one cluster happens to all; the links between them are cut,
one way or both, or go dark; clusters are taken out of the namespace's and added again, refuse
messages or lose their ZooKeeper; topics move; the address of a cluster is wrong for a while. Then
all faults end, everything is replicated without a client, and the topic is read everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random

import pytest
from tests.simulation.bugs.planted import Plant, found_by
from tests.simulation.bugs.planted_replication import (
    believe_snapshots_alone,
    forget_what_has_no_receipt,
    forget_what_is_under_way,
    go_on_behind_what_was_sent,
    keep_the_versions_of_schemas,
    keep_who_was_refused,
    move_cursors_early,
    pass_over_the_refused,
    pass_what_waits,
    send_to_all,
    store_behind_the_refused,
    take_the_last_for_new,
    trim_what_is_not_replicated,
)
from tests.simulation.replication.geo import MESSAGES, Application, GeoClusters, tell
from tests.simulation.replication.geo_book import LAST_MESSAGES, Book, check, check_schemas
from tests.simulation.replication.geo_faults import (
    change_replication,
    cut_links,
    refuse_new_schemas,
    strike,
    take_new_schemas,
)
from tests.simulation.seeds import first_seeds

from geminga import Batching
from geminga_broker.replication.config import ReplicationConfig
from geminga_ledger import LedgerConfig
from geminga_scenarios.cluster import IMPATIENT, PATIENT, SHORT_FAULTS, Shape, Sizes
from geminga_scenarios.verdicts import results
from geminga_simulation.fault_injector import FaultInjector
from geminga_simulation.fault_menu import FaultMenu
from geminga_simulation.simulate import Outcome, simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEEDS_A_TEST = 5
NAMES = ("east", "west", "north")
SEND_S = 5.0
FAULTY_S = 15.0
TIME_LIMIT_S = 900.0
CHANGES_MAX = 3
# Of the seeds with schemas in so many a cluster takes no new ones at first.
STRICT_SHARE = 0.5
SHAPES = (
    Shape(),
    Shape(brokers=2),
    Shape(brokers=2, proxies=1),
    Shape(3, 1, Sizes(3, 2, 2)),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a story is told on.

    ``keeping`` are the clusters with a subscription that keeps all; the others' logs are trimmed as
    soon as they are replicated. ``delaying`` is the one that sends messages with a delay; those of
    the clusters ``having_schemas`` have each a schema; some of those of the ``selecting`` are not
    for all clusters. So often an operator ``changes`` something,
    so many ``strikes`` hit a whole cluster.
    """

    shapes: Mapping[str, Shape]
    menu: FaultMenu
    replication: ReplicationConfig
    ledgers: LedgerConfig
    batching: Batching | None
    keeping: frozenset[str]
    delaying: str
    having_schemas: frozenset[str]
    selecting: frozenset[str]
    changes: int
    strikes: int
    are_links_cut: bool

    @classmethod
    def drawn(cls, random: Random) -> Setting:
        """One of many."""
        changes = random.randrange(CHANGES_MAX + 1)
        full = replace(SHORT_FAULTS, hosts_down_max=random.choice((1, 1, 2)))
        return cls(
            {name: random.choice(SHAPES) for name in NAMES},
            full.drawn(random),
            ReplicationConfig(
                start_at=random.choice(("earliest", "earliest", "latest")),
                pending_messages_max=random.choice((1, 4, 1000)),
                stall_timeout_s=random.choice((5.0, 60.0)),
            ),
            random.choice((PATIENT, IMPATIENT)),
            random.choice((None, Batching())),
            # Of what was trimmed a cluster that is added again gets nothing.
            frozenset(NAMES if changes else (*random.sample(NAMES, 2),)),
            random.choice(NAMES),
            frozenset(random.choice(((), (), NAMES[:1], NAMES))),
            frozenset(random.choice(((), NAMES[:1], NAMES))),
            changes,
            random.choice((0, 0, 1, 2)),
            random.random() < 0.7,
        )


async def live_through(geo: GeoClusters, setting: Setting, book: Book, chance: Random) -> None:
    """Faults while messages flow, then calm."""
    if setting.replication.start_at == "latest":
        await geo.until_replicated()  # what is published before is not sent
    strict = None
    if setting.having_schemas and chance.random() < STRICT_SHARE:
        strict = await refuse_new_schemas(geo, chance)
    book.are_replicating.set()
    async with FaultInjector(geo.world, setting.menu, geo.hosts):
        changes = change_replication(geo, book, setting.changes, setting.delaying, SEND_S, chance)
        tasks = [
            asyncio.create_task(changes),
            asyncio.create_task(strike(geo, setting.strikes, SEND_S, chance)),
        ]
        if strict is not None:
            tasks.append(asyncio.create_task(take_new_schemas(geo, strict, chance)))
        cutting = asyncio.create_task(cut_links(geo, chance))
        if not setting.are_links_cut:
            cutting.cancel()
        tasks.append(asyncio.create_task(book.told(book.has_sent)))
        await asyncio.wait(tasks, timeout=FAULTY_S)
        cutting.cancel()
        await asyncio.wait([cutting])
    await asyncio.gather(*tasks)


async def story(setting: Setting) -> int:
    """``live_through`` in a world of its own, and its check; how many messages were read."""
    applications = {
        name: Application(
            seconds=SEND_S,
            batching=setting.batching,
            keeps=name in setting.keeping,
            delays=name == setting.delaying,
            selects=name in setting.selecting,
            has_schema=name in setting.having_schemas,
        )
        for name in NAMES
    }
    async with World() as world:
        geo = GeoClusters(world, setting.shapes, setting.replication, setting.ledgers)
        await geo.open()
        book = Book(NAMES)
        chance = world.loop.stream("story")
        await tell(geo, book, applications, lambda: live_through(geo, setting, book, chance))
    check(book, begins_at_first=setting.replication.start_at == "earliest")
    check_schemas(book, setting.having_schemas)
    return sum(map(len, book.read.values()))


def run(seed: int, *, record: bool = False) -> Outcome[int]:
    """The story of one seed, which also chooses the clusters and what may go wrong; how many
    messages were read."""
    setting = Setting.drawn(Random(seed))
    return simulate(seed, partial(story, setting), time_limit_s=TIME_LIMIT_S, record=record)


@pytest.mark.parametrize("first", first_seeds("replication", SEEDS_A_TEST))
def test_clusters_have_each_message_once_after_all_that_happened(first: int) -> None:
    read = sum(results(without_bugs, range(first, first + SEEDS_A_TEST)))
    sent = len(NAMES) * (MESSAGES + LAST_MESSAGES)
    assert read > SEEDS_A_TEST * sent, "by two clusters at least"


def test_a_seed_repeats() -> None:
    assert run(2) == without_bugs(2)


@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (take_the_last_for_new, 10),
        (forget_what_is_under_way, 10),
        (forget_what_has_no_receipt, 10),
        pytest.param(trim_what_is_not_replicated, 10, marks=pytest.mark.full),
        (keep_the_versions_of_schemas, 2),
        (send_to_all, 10),
        pytest.param(go_on_behind_what_was_sent, 0, marks=pytest.mark.full),
        pytest.param(pass_what_waits, 0, marks=pytest.mark.full),
        # Each of these is found by a story of its own, too: ``test_replication_interleavings``.
        pytest.param(believe_snapshots_alone, 0, marks=pytest.mark.full),
        pytest.param(store_behind_the_refused, 0, marks=pytest.mark.full),
        pytest.param(keep_who_was_refused, 0, marks=pytest.mark.full),
        pytest.param(pass_over_the_refused, 0, marks=pytest.mark.full),
        pytest.param(move_cursors_early, 0, marks=pytest.mark.full),
    ],
)
def test_a_planted_bug_is_found_by_the_check(
    plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run, first)
    without_bugs(seed)


@cache
def without_bugs(seed: int) -> Outcome[int]:
    """The story of a seed, to which several tests come."""
    return run(seed)
