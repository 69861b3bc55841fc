"""The ledger table loads what it does not hold, and forgets only what it can load again."""

from __future__ import annotations

from tests.unit.geminga_bookie.fakes import KEY

from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.storage.ledgers import LedgerTable


class Loader:
    """The index's place: records by id, and how often they were asked for."""

    def __init__(self, *records: LedgerRecord) -> None:
        self.records = {record.ledger_id: record for record in records}
        self.asked: list[int] = []

    def __call__(self, ledger_id: int) -> LedgerRecord | None:
        self.asked.append(ledger_id)
        return self.records.get(ledger_id)


def test_a_ledger_is_loaded_once_with_all_that_is_known() -> None:
    loader = Loader(LedgerRecord(3, KEY, is_fenced=True, last_entry=9))
    table = LedgerTable(loader, 10)
    ledger = table.find(3)
    assert ledger is not None
    assert (ledger.master_key, ledger.is_fenced, ledger.last_flushed) == (KEY, True, 9)
    assert ledger.is_fence_durable
    assert not ledger.is_new
    assert table.find(3) is ledger
    assert loader.asked == [3]


def test_an_unknown_ledger_is_none_till_it_is_created() -> None:
    table = LedgerTable(Loader(), 10)
    assert table.find(3) is None
    ledger = table.create(3, KEY)
    assert table.find(3) is ledger
    assert ledger.is_new
    assert len(table.new_ids()) == 1
    assert (ledger.master_key, ledger.is_fenced, ledger.last_flushed) == (KEY, False, -1)


def test_the_ledger_not_asked_for_longest_is_forgotten() -> None:
    table = LedgerTable(Loader(), 2)
    for ledger_id in (1, 2):
        table.create(ledger_id, KEY)
    table.find(1)
    table.create(3, KEY)
    assert len(table) == 2
    assert table.find(2) is None
    assert table.find(1) is not None


def test_a_changed_ledger_is_never_forgotten_till_it_is_written() -> None:
    table = LedgerTable(Loader(), 1)
    ledger = table.create(1, KEY)
    table.mark_changed(ledger)
    for ledger_id in range(2, 30):
        table.create(ledger_id, KEY)
    assert table.find(1) is ledger
    changed = table.take_changed()
    assert changed == {1: ledger}
    table.create(50, KEY)
    assert table.find(1) is ledger
    table.mark_written(ledger)
    table.create(51, KEY)
    table.create(52, KEY)
    assert table.find(1) is None


def test_a_ledger_that_changes_while_it_is_written_stays_changed() -> None:
    table = LedgerTable(Loader(), 10)
    ledger = table.create(1, KEY)
    table.mark_changed(ledger)
    table.take_changed()
    assert not table.changed
    table.mark_changed(ledger)
    table.mark_written(ledger)
    assert ledger.is_changed
    assert not ledger.is_new
    assert table.take_changed() == {1: ledger}


def test_a_table_of_changed_ledgers_grows_rather_than_forgets() -> None:
    table = LedgerTable(Loader(), 5)
    for ledger_id in range(40):
        table.mark_changed(table.create(ledger_id, KEY))
    assert len(table) == 40
