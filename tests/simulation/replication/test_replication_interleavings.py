"""Proves that two orders of events in which upstream's replication loses or repeats messages do
neither here, between two whole clusters: the head of what is on its way is refused while what
follows could be stored (apache/pulsar#26113), and a cluster loads its topic again before the other
has the receipts for what it stored (#25861). And that a topic which no client uses is replicated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from tests.simulation.bugs.planted import Plant
from tests.simulation.bugs.planted_replication import (
    believe_snapshots_alone,
    keep_who_was_refused,
    move_cursors_early,
    pass_over_the_refused,
    send_in_haste,
    store_behind_the_refused,
    take_all_for_new,
    wait_for_clients,
)
from tests.simulation.coverage.sometimes import Rare, counting
from tests.simulation.replication.geo import DELAY_S, Application, GeoClusters, tell
from tests.simulation.replication.geo_book import Book, check

from geminga_broker.replication.config import ReplicationConfig
from geminga_scenarios.cluster import Shape
from geminga_simulation.errors import InvariantViolated
from geminga_simulation.simulate import simulate
from geminga_simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SEED = 2  # one of the usual sizes: as much may be on its way as the stories send
TIME_LIMIT_S = 900.0
EAST, WEST = "east", "west"
# Of what East sends close together every seventh message has a delay, the first among them. What it
# sends last is not in the last snapshot of positions that West takes, one every ten entries.
APPLICATIONS = {
    EAST: Application(messages=63, seconds=1.0, delays=True),
    WEST: Application(messages=1, seconds=0.0),
}
# In so long everything gets to the other cluster that can.
WHILE_S = 2.0
DOWN_S = 0.5

Story = Callable[[GeoClusters, Book], Awaitable[None]]


async def refuse_the_head(geo: GeoClusters, book: Book) -> None:
    """West refuses the first entry that is on its way, and each one like it."""
    await geo.limit_delays(WEST, int(DELAY_S * 500))
    await geo.until_replicated()  # the policies are known by then
    book.are_replicating.set()
    await book.told(book.has_sent)
    await asyncio.sleep(WHILE_S)
    await geo.limit_delays(WEST, 0)


async def lose_the_receipts(geo: GeoClusters, book: Book, *, restarts: tuple[str, ...]) -> None:
    """West stores what East sends, and brokers are killed, those of ``restarts``, before East gets
    the receipts."""
    east, west = (geo.clusters[name].brokers[0] for name in (EAST, WEST))
    await geo.until_replicated()
    geo.world.network.cut(west.name, east.name, is_one_way=True)
    book.are_replicating.set()
    await asyncio.sleep(WHILE_S)
    for stream in geo.world.network.streams():
        if {stream.host, stream.peer.host} == {east.name, west.name}:
            geo.world.network.reset(stream)  # with the receipts that are on their way
    for name in restarts:
        host = geo.clusters[name].brokers[0]
        host.kill()
        geo.world.later(DOWN_S, host.restart)
    await asyncio.sleep(DOWN_S)
    geo.world.network.heal(west.name, east.name)
    await book.told(book.has_sent)


async def leave_it_alone(geo: GeoClusters, book: Book) -> None:
    """East has what West lacks, and nothing would have East load its topic: its
    application has gone, and West does not replicate to it."""
    east, west = (geo.clusters[name].brokers[0] for name in (EAST, WEST))
    await geo.replicate(WEST, [])
    book.interrupted.add((WEST, EAST))
    await geo.until_replicated()
    geo.world.partition(east.name, west.name)
    book.are_replicating.set()
    await book.told(book.has_sent)
    await asyncio.sleep(WHILE_S)  # the application's client closes
    east.kill()
    geo.world.later(DOWN_S, east.restart)
    await asyncio.sleep(DOWN_S)
    geo.world.heal(east.name, west.name)
    await geo.until_replicated()
    await geo.replicate(WEST, [EAST])


async def _told(story: Story) -> Counter[Rare]:
    with counting() as rare:
        async with World() as world:
            shapes = {EAST: Shape(), WEST: Shape()}
            geo = GeoClusters(world, shapes, ReplicationConfig())
            await geo.open()
            book = Book((EAST, WEST))
            await tell(geo, book, APPLICATIONS, lambda: story(geo, book))
    check(book, begins_at_first=False)
    return rare


def run(story: Story) -> Counter[Rare]:
    """What the story came to that is rare; raises ``InvariantViolated``."""
    return simulate(SEED, partial(_told, story), time_limit_s=TIME_LIMIT_S).result


LOST_RECEIPTS = [
    partial(lose_the_receipts, restarts=restarts) for restarts in ((WEST,), (EAST,), (EAST, WEST))
]


@pytest.mark.parametrize("is_hasty", [False, True])
def test_a_refused_head_is_stored_before_what_follows_it(
    *, is_hasty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_hasty:
        send_in_haste(monkeypatch)
    rare = run(refuse_the_head)
    assert rare[Rare.REFUSED]
    assert rare[Rare.REWOUND]


def test_positions_are_found_again_in_entries_behind_the_last_snapshot() -> None:
    assert run(LOST_RECEIPTS[0])[Rare.FOUND_AGAIN]


@pytest.mark.parametrize("story", LOST_RECEIPTS)
def test_what_is_stored_without_a_receipt_is_a_repeat_when_it_comes_again(story: Story) -> None:
    assert run(story)[Rare.REPEAT] >= APPLICATIONS[EAST].messages


def test_a_topic_is_replicated_though_no_client_uses_it() -> None:
    assert run(leave_it_alone)[Rare.LOADED]


@pytest.mark.parametrize(
    ("plant", "story"),
    [
        (store_behind_the_refused, refuse_the_head),
        (keep_who_was_refused, refuse_the_head),
        (pass_over_the_refused, refuse_the_head),
        (move_cursors_early, refuse_the_head),
        (take_all_for_new, LOST_RECEIPTS[0]),
        (believe_snapshots_alone, LOST_RECEIPTS[0]),
        (wait_for_clients, leave_it_alone),
    ],
)
def test_a_planted_bug_is_found(
    plant: Plant, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plant in (store_behind_the_refused, keep_who_was_refused):
        send_in_haste(monkeypatch)  # our replicator sends nothing that would be stored by mistake
    plant(monkeypatch)
    with pytest.raises(InvariantViolated, match=r"lost|repeated|not replicated"):
        run(story)
