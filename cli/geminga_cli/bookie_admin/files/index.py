"""``dump-index``: the content of a bookie's index, beside a running bookie or without one.

The index of a running bookie is as old as its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from geminga_bookie.formats.entry_log_v1 import file_name
from geminga_bookie.formats.index_v2 import FORMAT_VERSION
from geminga_bookie.index.index import Index
from geminga_bookie.index.rocks_store import INDEX_DIRECTORY, IndexNotOpened, RocksStore
from geminga_cli.bookie_admin.errors import UnreadableFile
from geminga_cli.display.text import count_words, size_words, table


def dump_index(options: argparse.Namespace) -> int:
    """Print ledgers, entry logs and journal marks, or one ledger with its blocks.

    Returns 1 if something is wrong. Raises ``UnreadableFile``.
    """
    directory: Path = options.data_directory / INDEX_DIRECTORY
    # RocksDB's pointer to its current state: without this file there is no database.
    if not (directory / "CURRENT").is_file():
        raise UnreadableFile(directory, "there is no index; name the bookie's data directory")
    try:
        # RocksDB takes no lock then, so that a running bookie is not disturbed.
        store = RocksStore(directory, is_read_only=True)
    except IndexNotOpened as error:
        print(error)
        return 1
    # Iterators over the store end with it: everything is printed before it is closed.
    try:
        index = Index(store)
        version = index.format_version
        if version != FORMAT_VERSION:
            print(f"the index's version is {version}, not {FORMAT_VERSION}")
            return 1
        if options.ledger is not None:
            return _dump_ledger(index, options)
        _dump_all(index, options)
    except OSError as error:  # while it was read; the part before it is printed
        print(error)
        return 1
    finally:
        store.close()
    return 0


def _dump_all(index: Index, options: argparse.Namespace) -> None:
    ledgers = [
        {
            "ledger": record.ledger_id,
            "lastEntry": record.last_entry,
            "fenced": record.is_fenced,
        }
        for record in index.ledgers()
    ]
    logs = [
        {"log": file_name(number), "liveBytes": usage.live_bytes, "bytes": usage.end}
        for number, usage in index.logs.items()
    ]
    # A restart replays each journal from its mark on.
    marks = [
        {"file": mark.file_number, "offset": mark.offset, "nextGroup": mark.next_group}
        for mark in index.journal_marks()
    ]
    counts = index.counts()
    if options.json:
        whole = {"ledgers": ledgers, "entryLogs": logs, "journalMarks": marks}
        print(json.dumps(whole | {"entries": counts.entries}, indent=2))
        return
    entries = count_words(counts.entries, "entry", "entries")
    print(f"{count_words(counts.ledgers, 'ledger')}, {entries}")
    for number, mark in enumerate(marks):
        print(f"journal {number}: replayed from file {mark['file']}, byte {mark['offset']}")
    for line in table(
        ("entry log", "of use", "of"),
        (
            (file_name(number), size_words(usage.live_bytes), size_words(usage.end))
            for number, usage in index.logs.items()
        ),
    ):
        print(line)
    rows = ([each["ledger"], each["lastEntry"], each["fenced"] or None] for each in ledgers)
    for line in table(("ledger", "last entry", "fenced"), rows):
        print(line)


def _dump_ledger(index: Index, options: argparse.Namespace) -> int:
    record = index.ledger(options.ledger)
    if record is None:
        print(f"the index knows no ledger {options.ledger}")
        return 1
    # By entry, and copies of one entry in the order in which they were written.
    blocks = sorted(
        index.blocks_of(options.ledger), key=lambda at: (at.first_entry, at.log_number, at.offset)
    )
    columns = ("entry log", "offset", "bytes", "first", "last", "entries")
    rows = [
        (file_name(at.log_number), at.offset, at.size, at.first_entry, at.last_entry, at.entries)
        for at in blocks
    ]
    if options.json:
        shown = [dict(zip(columns, row, strict=True)) for row in rows]
        facts = {"ledger": record.ledger_id, "lastEntry": record.last_entry}
        print(json.dumps({**facts, "fenced": record.is_fenced, "blocks": shown}, indent=2))
        return 0
    fenced = ", fenced" if record.is_fenced else ""
    print(f"ledger {record.ledger_id}: last entry {record.last_entry}{fenced}")
    for line in table(columns, rows):
        print(line)
    return 0
