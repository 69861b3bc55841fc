"""Proves where bundles are cut, and that whose bundle is cut keeps serving all of its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from geminga_broker.ownership.addresses.address import BrokerAddress
from geminga_broker.ownership.assignment.bundles import Bundle
from geminga_broker.ownership.assignment.split import split_boundaries
from geminga_broker.ownership.errors import BundleNotSplit, NotOwned, UnknownSplitAlgorithm
from geminga_broker.ownership.ownership import Ownership
from geminga_cluster.errors import RecordContended
from geminga_cluster.namespaces import Namespaces
from geminga_cluster.tenants import Tenants
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.namespaces import BundlesData, Policies
from geminga_protocol.records.cluster.tenants import TenantInfo
from geminga_runtime.coordination import Coordination
from geminga_runtime.errors import GemingaError

SHOP = NamespaceName("acme", "shop")
HERE = BrokerAddress("here:8080", "pulsar://here:6650", "http://here:8080")
THERE = BrokerAddress("there:8080", "pulsar://there:6650", "http://there:8080")
BUNDLE = Bundle(SHOP, 0x40000000, 0x80000000)
TOPICS = [TopicName.parse(f"persistent://acme/shop/t{number}") for number in range(200)]

Session = Callable[[str], Coordination]


@pytest.mark.parametrize(
    ("algorithm", "hashes", "positions", "boundaries"),
    [
        ("range_equally_divide", [], [], [0x60000000]),
        ("topic_count_equally_divide", [0x40000001, 0x40000003, 0x40000005], [], [0x40000002]),
        ("topic_count_equally_divide", [0x40000001, 0x40000002], [], [0x40000002]),
        ("topic_count_equally_divide", [0x40000001] * 3, [], [0x40000001]),
        (
            "specified_positions_divide",
            [],
            [0x7FFFFFFF, 0x50000000, 0x50000000, 0x40000000, 0x80000000, 7],
            [0x50000000, 0x7FFFFFFF],
        ),
    ],
)
def test_a_bundle_is_cut_as_upstream_does(
    algorithm: str, hashes: list[int], positions: list[int], boundaries: list[int]
) -> None:
    assert split_boundaries(BUNDLE, algorithm, hashes=hashes, positions=positions) == boundaries


def test_half_of_the_topics_are_on_each_side() -> None:
    hashes = [topic.hash for topic in TOPICS]
    whole = Bundle(SHOP, 0, 0xFFFFFFFF)
    (cut,) = split_boundaries(whole, "topic_count_equally_divide", hashes=hashes, positions=[])
    assert sum(each < cut for each in hashes) == len(hashes) // 2


@pytest.mark.parametrize(
    ("algorithm", "hashes", "positions"),
    [
        ("topic_count_equally_divide", [0x40000001], []),
        ("specified_positions_divide", [], [0x40000000, 0x80000000]),
    ],
)
def test_what_cannot_be_cut_stays(algorithm: str, hashes: list[int], positions: list[int]) -> None:
    with pytest.raises(BundleNotSplit):
        split_boundaries(BUNDLE, algorithm, hashes=hashes, positions=positions)


def test_an_unknown_algorithm_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownSplitAlgorithm, match="range_equally_divide"):
        split_boundaries(BUNDLE, "by_hand", hashes=[], positions=[])


@pytest.fixture
async def namespaces(coordination: Coordination) -> Namespaces:
    """With the namespace ``acme/shop`` of two bundles."""
    await Tenants(coordination).create("acme", TenantInfo())
    made = Namespaces(coordination)
    await made.create(SHOP, Policies(bundles=BundlesData.equal(2)))
    return made


async def test_topics_are_served_at_every_moment_of_a_split(
    coordination: Coordination, namespaces: Namespaces, session: Session
) -> None:
    there = session("there")
    async with (
        Ownership(coordination, namespaces, HERE) as ours,
        Ownership(there, Namespaces(there), THERE) as theirs,
    ):
        for topic in TOPICS:
            await ours.owner(topic)
        lost: list[Bundle] = []
        ours.owned.on_lost.append(lost.append)
        bundle = await ours.rings.bundle_of(TOPICS[0])
        before = {topic: (await theirs.owner(topic)).broker_url for topic in TOPICS}
        assert set(before.values()) == {HERE.broker_url}
        splitting = asyncio.ensure_future(ours.split(bundle, [bundle.lower + 0x1000, 0x70000000]))
        while not splitting.done():
            assert all(map(ours.owns, TOPICS))
            await asyncio.sleep(0.0001)
        children = splitting.result()
        assert len(children) == 3
        assert sorted(map(str, list(ours.owned.generations))) == sorted(
            map(str, (await ours.rings.ring_of(SHOP)).bundles)
        )
        assert len(ours.owned.generations) == 4
        assert all(map(ours.owns, TOPICS))
        assert {(await theirs.owner(topic)).broker_url for topic in TOPICS} == {HERE.broker_url}
        assert list(theirs.owned.generations) == lost == []


async def test_of_two_cuts_of_one_bundle_only_one_is_made(
    coordination: Coordination, namespaces: Namespaces
) -> None:
    async with Ownership(coordination, namespaces, HERE) as ours:
        await ours.owner(TOPICS[0])
        bundle = await ours.rings.bundle_of(TOPICS[0])
        results = await asyncio.gather(
            ours.split(bundle, [bundle.lower + 1]),
            ours.split(bundle, [bundle.lower + 2]),
            return_exceptions=True,
        )
        assert [type(each) for each in results] == [list, NotOwned]


async def test_a_bundle_that_was_cut_by_hand_meanwhile_is_not_cut_again(
    coordination: Coordination, namespaces: Namespaces
) -> None:
    async with Ownership(coordination, namespaces, HERE) as ours:
        await ours.owner(TOPICS[0])
        bundle = await ours.rings.bundle_of(TOPICS[0])
        lower, upper = f"0x{bundle.lower:08x}", f"0x{bundle.upper:08x}"
        await namespaces.cut_bundle(SHOP, lower, upper, [f"0x{bundle.lower + 7:08x}"])
        with pytest.raises(RecordContended):
            await ours.split(bundle, [bundle.lower + 1])
        assert list(ours.owned.generations) == [bundle], (
            "the pieces that the ring does not have are given back"
        )


async def test_a_bundle_that_is_cut_while_it_is_looked_up_is_not_acquired(
    coordination: Coordination, namespaces: Namespaces
) -> None:
    async with Ownership(coordination, namespaces, HERE) as ours:
        bundle = await ours.rings.bundle_of(TOPICS[0])
        lower, upper = f"0x{bundle.lower:08x}", f"0x{bundle.upper:08x}"
        await namespaces.cut_bundle(SHOP, lower, upper, [f"0x{bundle.lower + 1:08x}"])
        with pytest.raises(GemingaError, match="was split"):
            await ours.owner_of(bundle)
        assert list(ours.owned.generations) == []
