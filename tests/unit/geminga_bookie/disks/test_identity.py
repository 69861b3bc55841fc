"""A bookie starts only where its disks, its settings and ZooKeeper agree on who it is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.geminga_bookie.fakes import INSTANCE_ID, bookie_session
from tests.unit.geminga_bookie.memory_disk import MemoryDisk

from geminga_bookie.disks.directories import Directories
from geminga_bookie.disks.identity import BadBookieId, establish_identity
from geminga_bookie.errors import (
    ClusterNotInitialized,
    CookieMismatch,
    CookieMissing,
    CorruptFile,
    DataWithoutCookie,
    DirectoriesChanged,
)
from geminga_protocol.records.bookies.cookies import COOKIE_FILE_NAME, Cookie, cookie_path
from geminga_protocol.records.ledgers.ledger_metadata import INSTANCE_ID_PATH
from geminga_simulation.event_loop.clock import SimulatedClock
from geminga_simulation.zookeeper.interception import InstantSession


class Place:
    """Disks and ZooKeeper that outlive starts."""

    def __init__(self, coordination: InstantSession | None = None) -> None:
        self.journal_disk = MemoryDisk()
        self.ledger_disk = MemoryDisk()
        self.more_journal_disks: list[MemoryDisk] = []
        self.more_ledger_disks: list[MemoryDisk] = []
        self.coordination = coordination or bookie_session()

    async def start(
        self,
        bookie_id: str = "",
        *,
        journals: Sequence[str] = ("/data/journal",),
        ledgers: Sequence[str] = ("/data/ledgers",),
    ) -> Cookie:
        journal_disks = [self.journal_disk, *self.more_journal_disks]
        ledger_disks = [self.ledger_disk, *self.more_ledger_disks]
        return await establish_identity(
            bookie_id,
            Directories(zip(journals, journal_disks, strict=False)),
            Directories(zip(ledgers, ledger_disks, strict=False)),
            self.coordination,
            SimulatedClock(),
        )

    def node(self, bookie_id: str) -> Cookie:
        return Cookie.decode(self.coordination.zookeeper.tree.get(cookie_path(bookie_id))[0])


async def test_the_first_start_leaves_the_same_cookie_everywhere() -> None:
    place = Place()
    cookie = await place.start("bookie-7")
    assert cookie == Cookie(
        bookie_id="bookie-7",
        journal_dirs=("/data/journal",),
        ledger_dirs=("/data/ledgers",),
        instance_id=INSTANCE_ID,
    )
    assert place.node("bookie-7") == cookie
    for disk in (place.journal_disk, place.ledger_disk):
        assert await disk.read_file(COOKIE_FILE_NAME) == cookie.encode()
    assert await place.start("bookie-7") == cookie


async def test_an_id_is_made_up_once_and_kept() -> None:
    place = Place()
    cookie = await place.start()
    assert cookie.bookie_id.startswith("bookie-")
    place.coordination = place.coordination.another()
    assert await place.start() == cookie
    other = Place(place.coordination)
    assert (await other.start()).bookie_id != cookie.bookie_id


async def test_moving_the_whole_data_directory_is_no_fault() -> None:
    place = Place()
    cookie = await place.start()
    assert await place.start(journals=["/new/j"], ledgers=["/new/l"]) == cookie


async def test_one_disk_may_hold_journal_and_ledgers() -> None:
    place = Place()
    place.ledger_disk = place.journal_disk
    assert await place.start() == await place.start()


async def test_a_cluster_that_was_not_initialised_is_said() -> None:
    place = Place()
    place.coordination.zookeeper.remove(INSTANCE_ID_PATH)
    with pytest.raises(ClusterNotInitialized, match="initialize-cluster-metadata"):
        await place.start()


@pytest.mark.parametrize("bookie_id", ["with space", "readonly", "a/b"])
async def test_an_id_that_bookkeeper_does_not_take_is_refused(bookie_id: str) -> None:
    with pytest.raises(BadBookieId, match=bookie_id):
        await Place().start(bookie_id)


async def test_a_directory_of_another_bookie_is_refused_with_both_names() -> None:
    place = Place()
    await place.start("bookie-7")
    with pytest.raises(BadBookieId, match=r"bookie-8.*bookie-7"):
        await place.start("bookie-8")


@pytest.mark.parametrize("missing", ["journal_disk", "ledger_disk"])
async def test_a_lost_disk_is_refused_with_the_cookie_and_the_way_out(missing: str) -> None:
    place = Place()
    await place.start("bookie-7")
    setattr(place, missing, MemoryDisk())
    with pytest.raises(CookieMissing, match=missing.split("_", maxsplit=1)[0]) as caught:
        await place.start("bookie-7")
    assert 'bookieHost: "bookie-7"' in str(caught.value)
    assert "mounted" in str(caught.value)
    assert "geminga bookie-admin restore-cookie BOOKIE --directory" in str(caught.value)


async def test_disks_of_two_bookies_are_refused_with_both_cookies() -> None:
    place, other = Place(), Place()
    await place.start("bookie-7")
    other.coordination = place.coordination
    await other.start("bookie-8")
    place.journal_disk = other.journal_disk
    with pytest.raises(CookieMismatch, match="journal") as caught:
        await place.start("bookie-7")
    assert "bookie-7" in str(caught.value)
    assert "bookie-8" in str(caught.value)


async def test_the_directory_of_another_cluster_is_refused_with_both_instances() -> None:
    place = Place()
    await place.start("bookie-7")
    place.coordination = bookie_session()
    place.coordination.zookeeper.put(INSTANCE_ID_PATH, b"instance-2")
    with pytest.raises(CookieMismatch) as caught:
        await place.start("bookie-7")
    assert INSTANCE_ID in str(caught.value)
    assert "instance-2" in str(caught.value)


async def test_a_cookie_of_an_earlier_cluster_in_zookeeper_is_refused() -> None:
    place = Place()
    await place.start("bookie-7")
    place.coordination.zookeeper.put(INSTANCE_ID_PATH, b"instance-2")
    with pytest.raises(CookieMismatch, match=cookie_path("bookie-7")):
        await place.start("bookie-7")


async def test_a_first_start_that_died_half_way_is_completed() -> None:
    place = Place()
    cookie = await place.start()
    place.coordination.zookeeper.remove(cookie_path(cookie.bookie_id))
    place.journal_disk = MemoryDisk()
    assert await place.start() == cookie
    assert place.node(cookie.bookie_id) == cookie
    assert await place.journal_disk.read_file(COOKIE_FILE_NAME) == cookie.encode()


@pytest.mark.parametrize(
    ("disk", "name", "where"),
    [
        ("journal_disk", "000000000001.journal", "journal directory /data/journal"),
        ("ledger_disk", "000000000007.entries", "ledger directory /data/ledgers"),
        ("ledger_disk", "entry-logs", "ledger directory /data/ledgers"),
        ("ledger_disk", "current", "ledger directory /data/ledgers"),
    ],
)
async def test_data_without_any_cookie_is_not_taken_for_a_new_bookies(
    disk: str, name: str, where: str
) -> None:
    place = Place()
    before = place.coordination.zookeeper.tree.values()
    await getattr(place, disk).write_file(name, b"acknowledged")
    for wanted_id in ("", "bookie-7"):
        with pytest.raises(DataWithoutCookie, match=rf"{where}.*{name}") as caught:
            await place.start(wanted_id)
    assert "VERSION" in str(caught.value)
    assert "geminga bookie-admin cookie" in str(caught.value)
    assert place.coordination.zookeeper.tree.values() == before
    assert COOKIE_FILE_NAME not in place.journal_disk.files | place.ledger_disk.files


async def test_every_directory_with_data_and_no_cookie_is_named_with_some_of_its_files() -> None:
    place = Place()
    for number in range(100):
        await place.ledger_disk.write_file(f"{number:012}.entries", b"acknowledged")
    await place.journal_disk.write_file("000000000001.journal", b"acknowledged")
    with pytest.raises(DataWithoutCookie) as caught:
        await place.start()
    assert list(caught.value.found) == [
        "ledger directory /data/ledgers",
        "journal directory /data/journal",
    ]
    assert "000000000001.journal" in str(caught.value)
    assert "000000000004.entries, ... (100 files)" in str(caught.value)
    assert "000000000005.entries" not in str(caught.value)


async def test_a_directory_with_data_and_no_cookie_is_refused_beside_one_that_has_it() -> None:
    place = Place()
    cookie = await place.start()
    place.coordination.zookeeper.remove(cookie_path(cookie.bookie_id))
    place.ledger_disk = MemoryDisk({"000000000001.entries": b"acknowledged"})
    with pytest.raises(DataWithoutCookie, match="ledger directory /data/ledgers"):
        await place.start()


async def test_files_of_others_in_a_new_directory_are_no_data() -> None:
    place = Place()
    await place.ledger_disk.write_file("lost+found", b"")
    await place.start("bookie-7")


async def test_a_damaged_cookie_names_its_file() -> None:
    place = Place()
    await place.start("bookie-7")
    await place.ledger_disk.write_file(COOKIE_FILE_NAME, b"garbage")
    with pytest.raises(CorruptFile, match="VERSION in ledger directory /data/ledgers"):
        await place.start("bookie-7")


async def test_a_damaged_cookie_node_is_named() -> None:
    place = Place()
    await place.start("bookie-7")
    place.coordination.zookeeper.put(cookie_path("bookie-7"), b"garbage")
    with pytest.raises(CorruptFile, match=cookie_path("bookie-7")):
        await place.start("bookie-7")


async def test_every_directory_gets_the_cookie_and_none_may_be_missing() -> None:
    place = Place()
    place.more_journal_disks = [MemoryDisk()]
    place.more_ledger_disks = [MemoryDisk(), MemoryDisk()]
    journals, ledgers = ["/j1", "/j2"], ["/l1", "/l2", "/l3"]
    cookie = await place.start("bookie-7", journals=journals, ledgers=ledgers)
    assert (cookie.journal_dirs, cookie.ledger_dirs) == (tuple(journals), tuple(ledgers))
    for disk in (*place.more_journal_disks, *place.more_ledger_disks):
        assert await disk.read_file(COOKIE_FILE_NAME) == cookie.encode()
    place.more_ledger_disks[1] = MemoryDisk()
    with pytest.raises(CookieMissing, match="/l3"):
        await place.start("bookie-7", journals=journals, ledgers=ledgers)


@pytest.mark.parametrize("kind", ["journal", "ledger"])
async def test_fewer_directories_than_the_bookie_was_made_with_are_refused(kind: str) -> None:
    place = Place()
    place.more_journal_disks = [MemoryDisk()]
    place.more_ledger_disks = [MemoryDisk()]
    journals, ledgers = ["/j1", "/j2"], ["/l1", "/l2"]
    await place.start("bookie-7", journals=journals, ledgers=ledgers)
    del (journals if kind == "journal" else ledgers)[1:]
    with pytest.raises(DirectoriesChanged, match=f"1 {kind} directories .*/.1.* 2 .*/.1, /.2"):
        await place.start("bookie-7", journals=journals, ledgers=ledgers)
