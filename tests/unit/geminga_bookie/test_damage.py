"""Every kind of file of a bookie, cut short or with a bit turned over: what it says, what it keeps.

Nothing that was acknowledged is missing in silence: either it is read as it was written, or the
bookie says which file is wrong and what to do, or it answers that it could not read.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.geminga_bookie.fakes import batch_read, make_add, make_entry
from tests.unit.geminga_bookie.garbage_rig import NEVER, PAYLOAD, add, make_unknown, register
from tests.unit.geminga_bookie.host import CONFIG, Host
from tests.unit.geminga_bookie.memory_disk import MemoryDisk
from tests.unit.geminga_bookie.v3_requests import V3Client, list_entries, read

from geminga_bookie.errors import (
    BookieError,
    CorruptFile,
    EntriesLost,
    EntryLogMissing,
    UnknownFormat,
)
from geminga_bookie.formats import entry_log_v1, journal_v1
from geminga_bookie.index.memory_store import MemoryStore
from geminga_bookie.storage.last_confirmed import LastConfirmed
from geminga_protocol.bookkeeper.digest import decode_entry
from geminga_protocol.bookkeeper.errors import BookieFailed, EntryDigestMismatch
from geminga_protocol.bookkeeper.v2 import Flag, ReturnCode, encode_read
from geminga_protocol.records.bookies.cookies import COOKIE_FILE_NAME

ENTRIES = 40
# Of a whole entry: a high byte of what its writer knew to be confirmed.
LAST_CONFIRMED_OFFSET = 16 + 2


async def stopped(*, is_clean: bool = True) -> Host:
    """A machine whose bookie stopped: many small logs, small journals, all of ledger 1."""
    host = Host(
        CONFIG,
        garbage=NEVER,
        entry_log_bytes_max=2000,
        journal_file_bytes_max=1000,
        block_bytes=400,
    )
    bookie = host.bookie()
    await bookie.__aenter__()
    register(host.coordination, 1)
    client = host.network.connect_client()
    await add(bookie, client, 1, 0, 4)
    for first in range(4, ENTRIES, 4):
        if is_clean:
            await add(bookie, client, 1, first, 4)
        else:  # what is never checkpointed only the journal has
            await client.ask(*(make_add(1, first + number, PAYLOAD) for number in range(4)))
    if not is_clean:
        host.kill()
    await bookie.__aexit__(None, None, None)
    return host


async def outcome(host: Host) -> str:
    """How a start and reading everything go: ``refused``, ``failed reads`` or ``all there``."""
    try:
        async with host.bookie():
            client = host.network.connect_client()
            requests = [encode_read(1, number) for number in range(ENTRIES)]
            answers = await client.ask(*requests)
    except BookieError:
        return "refused"
    codes = [answer[1] for answer in answers]
    for number, answer in enumerate(answers):
        assert answer[1] in (0, ReturnCode.EIO), f"entry {number}: {answer[1]}"
        if not answer[1] and answer[4] != make_entry(1, number, PAYLOAD):
            with pytest.raises(EntryDigestMismatch):
                decode_entry(answer[4], 0, len(answer[4]), 1, number)
            codes[number] = ReturnCode.EIO
    assert sum(map(bool, codes)) <= 1, "one wrong byte cost more than one entry"
    return "failed reads" if any(codes) else "all there"


def files(disk: MemoryDisk, suffix: str) -> list[str]:
    return sorted(name for name in disk.files if name.endswith(suffix))


async def test_a_bit_of_an_entry_log_turned_over_is_never_passed_over_in_silence() -> None:
    host = await stopped()
    intact = host.ledger_disk.contents()
    outcomes: set[str] = set()
    for name in files(host.ledger_disk, entry_log_v1.SUFFIX):
        for offset in range(0, len(intact[name]), 211):
            host.ledger_disk = MemoryDisk(intact)
            host.ledger_disk.files[name].content[offset] ^= 0x10
            outcomes.add(await outcome(host))
    assert outcomes == {"failed reads", "all there"}


async def test_reads_of_a_block_of_an_unknown_kind_are_answered_with_an_error() -> None:
    host = Host(CONFIG, garbage=NEVER, read_cache_bytes_max=1)
    async with host.bookie() as bookie:
        register(host.coordination, 1)
        client = host.network.connect_client()
        await client.ask(make_add(1, 0), make_add(1, 2))  # a hole: the index says not which
        await bookie.checkpointer.run()
        await add(bookie, client, 2, 0, 1)
        (at,) = bookie.storage.index.blocks_of(1)
        make_unknown(host.ledger_disk, entry_log_v1.file_name(at.log_number), at.offset)
        answers = await client.ask(encode_read(1, 0), batch_read(1, 0), encode_read(2, 0))
        assert [answer[1] for answer in answers] == [ReturnCode.EIO, ReturnCode.EIO, 0]
        v3 = V3Client(host.network.connect_client())
        assert await v3.status(read(1, 0)) == "EIO"
        assert await v3.status(list_entries(1)) == "EIO"
        assert await v3.status(read(2, 0)) == "EOK"


async def test_an_index_is_not_made_again_without_a_block_of_an_unknown_kind() -> None:
    host = await stopped()
    (name, *_) = files(host.ledger_disk, entry_log_v1.SUFFIX)
    make_unknown(host.ledger_disk, name, entry_log_v1.FILE_HEADER_BYTES)
    host.store = MemoryStore()
    with pytest.raises(UnknownFormat, match=name):
        async with host.bookie():
            pass


async def test_a_copy_that_was_brought_back_is_believed_more_than_a_damaged_one() -> None:
    host = Host(CONFIG, garbage=NEVER)
    async with host.bookie() as bookie:
        register(host.coordination, 1)
        client = host.network.connect_client()
        await add(bookie, client, 1, 0, 1)
        (log,) = files(host.ledger_disk, entry_log_v1.SUFFIX)
        content = host.ledger_disk.files[log].content
        content[bytes(content).find(PAYLOAD)] ^= 1
        ((_, code, _, _, entry),) = await client.ask(encode_read(1, 0))
        assert code == 0
        with pytest.raises(EntryDigestMismatch):
            decode_entry(entry, 0, len(entry), 1, 0)
        await client.ask(make_add(1, 0, PAYLOAD, flags=int(Flag.RECOVERY_ADD)))
        await bookie.checkpointer.run()
        assert (await client.ask(encode_read(1, 0)))[0][4] == make_entry(1, 0, PAYLOAD)


async def test_what_a_damaged_entry_says_is_confirmed_is_not_believed_nor_told() -> None:
    host = Host(CONFIG, garbage=NEVER)
    async with host.bookie() as bookie:
        register(host.coordination, 1)
        client = host.network.connect_client()
        await add(bookie, client, 1, 0, 10)
        (log,) = files(host.ledger_disk, entry_log_v1.SUFFIX)
        content = host.ledger_disk.files[log].content
        content[content.find(make_entry(1, 9, PAYLOAD)) + LAST_CONFIRMED_OFFSET] ^= 0x10
        with pytest.raises(BookieFailed):
            await LastConfirmed(bookie.storage).fetch(1)
        answer = (await V3Client(client).ask(read(1, 3))).readResponse
        assert answer.body == make_entry(1, 3, PAYLOAD)
        assert not answer.HasField("maxLAC")


@pytest.mark.parametrize("left", [0, 10, 500, -1])
async def test_an_entry_log_that_was_cut_stops_the_start_and_is_named(left: int) -> None:
    host = await stopped()
    intact = host.ledger_disk.contents()
    for name in files(host.ledger_disk, entry_log_v1.SUFFIX):
        host.ledger_disk = MemoryDisk(intact)
        del host.ledger_disk.files[name].content[left:]
        with pytest.raises(CorruptFile, match=f"{name} is damaged .* Restore the file"):
            async with host.bookie():
                pass


async def test_an_entry_log_that_is_gone_stops_the_start_and_nothing_is_changed() -> None:
    host = await stopped()
    intact = host.ledger_disk.contents()
    for name in files(host.ledger_disk, entry_log_v1.SUFFIX):
        host.ledger_disk = MemoryDisk(intact)
        del host.ledger_disk.files[name]
        with pytest.raises(EntryLogMissing, match=f"{name} is missing from ledgers.*Put it back"):
            async with host.bookie():
                pass
        assert host.ledger_disk.contents() == {
            other: content for other, content in intact.items() if other != name
        }


async def test_nor_is_a_damaged_log_whose_index_is_lost() -> None:
    host = await stopped()
    intact = host.ledger_disk.contents()
    outcomes: set[str] = set()
    logs = files(host.ledger_disk, entry_log_v1.SUFFIX)
    for name in logs[:-1]:  # what a crash tears off the last one, the journal has
        for offset in range(0, len(intact[name]), 211):
            host.ledger_disk = MemoryDisk(intact)
            host.store = MemoryStore()
            host.ledger_disk.files[name].content[offset] ^= 0x10
            outcomes.add(await outcome(host))
            host.ledger_disk = MemoryDisk(intact)
            host.store = MemoryStore()
            del host.ledger_disk.files[name].content[offset + 1 :]
            cut = await outcome(host)
            assert cut == "refused"
    assert outcomes == {"refused", "failed reads", "all there"}


async def test_a_lost_index_of_whole_logs_is_made_again() -> None:
    host = await stopped()
    host.store = MemoryStore()
    assert await outcome(host) == "all there"


async def test_a_log_lost_together_with_the_index_stops_the_start_and_is_named() -> None:
    """Its entries would be denied, and recovery would believe that they had never been."""
    host = await stopped()
    intact = host.ledger_disk.contents()
    for name in files(host.ledger_disk, entry_log_v1.SUFFIX):
        host.ledger_disk = MemoryDisk(intact)
        host.store = MemoryStore()
        del host.ledger_disk.files[name]
        with pytest.raises(EntriesLost, match=f"{name}: it is missing.*--accept-lost-entries"):
            async with host.bookie():
                pass


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("left", [None, 0, 500])
async def test_once_the_loss_is_accepted_the_rest_is_served_and_the_next_start_is_as_ever(
    left: int | None,
    has_index: bool,  # noqa: FBT001 a parameter of the test
) -> None:
    host = await stopped()
    intact = host.ledger_disk.contents()
    journals = host.journal_disk.contents()
    pairs = list(host.store.flushed())
    settings = host.config
    for name in files(host.ledger_disk, entry_log_v1.SUFFIX):
        host.config = replace(settings, accept_lost_entries=True)
        host.ledger_disk = MemoryDisk(intact)
        host.journal_disk = MemoryDisk(journals)
        host.store = MemoryStore()
        if has_index:
            host.store.write(pairs)
        if left is None:
            del host.ledger_disk.files[name]
        else:
            del host.ledger_disk.files[name].content[left:]
        before = await read_all(host)
        assert set(before) <= {0, ReturnCode.ENOENTRY}
        host.config = settings
        assert await read_all(host) == before
        async with host.bookie() as bookie:
            client = host.network.connect_client()
            await add(bookie, client, 1, ENTRIES, 4)
        assert await read_all(host) == before


async def read_all(host: Host) -> list[int]:
    """What is answered to reads of all entries."""
    async with host.bookie():
        client = host.network.connect_client()
        answers = await client.ask(*(encode_read(1, number) for number in range(ENTRIES)))
    return [answer[1] for answer in answers]


async def test_nor_is_a_bit_of_a_journal_turned_over() -> None:
    host = await stopped(is_clean=False)
    intact = host.journal_disk.contents()
    logs = host.ledger_disk.contents()
    pairs = list(host.store.flushed())
    outcomes: set[str] = set()
    for name in files(host.journal_disk, journal_v1.SUFFIX):
        for offset in range(0, len(intact[name]), 97):
            host.journal_disk = MemoryDisk(intact)
            host.ledger_disk = MemoryDisk(logs)
            host.store = MemoryStore()
            host.store.write(pairs)
            host.journal_disk.files[name].content[offset] ^= 0x10
            outcomes.add(await outcome(host))
    assert outcomes <= {"refused", "all there"}
    assert "refused" in outcomes


# protobuf's reader of text warns of escapes that Python will refuse one day.
@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
@pytest.mark.parametrize("disk", ["journal_disk", "ledger_disk"])
async def test_wherever_a_cookie_is_damaged_the_start_is_refused(disk: str) -> None:
    host = await stopped()
    content = getattr(host, disk).contents()[COOKIE_FILE_NAME]
    for offset in range(len(content)):
        damaged = bytearray(content)
        damaged[offset] ^= 0x10
        await getattr(host, disk).write_file(COOKIE_FILE_NAME, bytes(damaged))
        assert await outcome(host) == "refused", offset
    for size in range(len(content) - 1):  # less than the newline at its end
        await getattr(host, disk).write_file(COOKIE_FILE_NAME, content[:size])
        assert await outcome(host) == "refused", size
