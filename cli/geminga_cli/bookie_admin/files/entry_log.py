"""``dump-entry-log``: the blocks in entry logs; what is damaged is reported and skipped.

The layout is ``geminga_bookie.formats.entry_log_v1``'s. Blocks that no index knows any more (of
deleted ledgers, or moved by compaction) are shown like all others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from geminga_bookie.formats import entry_log_v1 as layout
from geminga_cli.bookie_admin.files.dump import dump_files
from geminga_cli.bookie_admin.files.offline_file import Content, find_ahead
from geminga_cli.bookie_admin.verdicts.damaged_entries import damage_in
from geminga_cli.bookie_admin.verdicts.finding import Finding
from geminga_cli.display.text import count_words, ranges_words


def dump_entry_logs(options: argparse.Namespace) -> int:
    """Print what is in the files; returns 1 if something is wrong."""
    return dump_files(options, lambda path, file: entry_log_findings(path, file, options.ledger))


def entry_log_findings(path: str, file: Content, ledger_id: int | None = None) -> Iterator[Finding]:
    """Everything in an entry log, in order; with ``ledger_id``, its blocks and what is wrong.

    For a damaged block, the damaged entries are named, with the place of each in the file. Raises
    ``UnknownFormat`` for a whole file, or a block, of another kind, ``OSError``.
    """
    # Stage 1: the header of the file, which has the seed of all checksums.
    head = file.read(0, layout.FILE_HEADER_BYTES)
    seed = layout.decode_file_header(path, head)
    if seed is None:
        yield Finding(0, "header", "it is not what was written, or torn", is_wrong=True)
        if len(head) < layout.FILE_HEADER_BYTES:
            return
        # The last field is the seed of the checksums of all blocks. It may be sound, although the
        # header is not.
        seed = int.from_bytes(head[-4:], "big")
    else:
        # None for a copy that was given another name.
        number = layout.file_number(path.rpartition("/")[2])
        yield Finding(0, "header", f"entry log {'' if number is None else number}".rstrip())

    # Stage 2: block after block. ``offset`` is always where a block begins or should begin, and
    # grows in every round.
    offset = layout.FILE_HEADER_BYTES
    while offset < file.size:
        head = file.read(offset, layout.BLOCK_HEADER_BYTES)
        header = layout.decode_block_header(path, seed, head, 0)
        if header is None:
            # The bookie would stop here. The dump searches for the next header.
            find = partial(layout.find_block_header, seed)
            following = find_ahead(file, offset + 1, find, layout.BLOCK_HEADER_BYTES)
            end = file.size if following is None else following
            words = f"{count_words(end - offset, 'byte')} are no block"
            if following is None:
                words += "; none follows: a checkpoint was cut short here, or it is damaged"
            yield Finding(offset, "damage", words, {"bytes": end - offset}, is_wrong=True)
            offset = end
            continue
        # A sound header says where the next block begins, whatever is wrong with this one's
        # content.
        content = file.read(offset + layout.BLOCK_HEADER_BYTES, header.content_bytes)
        finding = _block(offset, header, content)
        if finding.is_wrong or ledger_id is None or header.ledger_id == ledger_id:
            yield finding
        offset += layout.BLOCK_HEADER_BYTES + header.content_bytes


def _block(offset: int, header: layout.BlockHeader, content: bytes) -> Finding:
    """A block whose header is sound."""
    facts: dict[str, object] = {
        "bytes": layout.BLOCK_HEADER_BYTES + header.content_bytes,
        "entries": header.count,
    }
    # Only the last block of a file can be cut off; a content of full length that is wrong was
    # damaged.
    missing_bytes = header.content_bytes - len(content)
    why = (
        f"{missing_bytes} bytes are missing at the end of the file"
        if missing_bytes > 0
        else "the content does not fit its checksum"
    )
    # Written by a checkpoint behind its blocks of entries: the state of ledgers without an index.
    if header.kind == layout.BlockKind.LEDGERS:
        records = layout.decode_ledgers(header, content)
        if records is None:
            words = f"{count_words(header.count, 'ledger record')}: {why}"
            return Finding(offset, "ledgers", words, facts, is_wrong=True)
        facts["ledgers"] = [each.ledger_id for each in records]
        names = (f"{each.ledger_id}{' fenced' if each.is_fenced else ''}" for each in records)
        return Finding(offset, "ledgers", ", ".join(names), facts)

    # From here on it is a block of entries.
    facts |= {"ledger": header.ledger_id, "firstEntry": header.first_entry}
    name = f"ledger {header.ledger_id}"
    if not layout.is_content(header, content):
        entries = count_words(header.count, "entry", "entries")
        words = f"{name}: {entries} from {header.first_entry} on: {why}"
        damage = damage_in(header, content, offset + layout.BLOCK_HEADER_BYTES)
        facts["damagedEntries"] = damage.record()
        return Finding(offset, "block", f"{words}; {damage.words()}", facts, is_wrong=True)
    ids = layout.decode_ids(header, content)
    facts["lastEntry"] = ids[-1]
    words = f"{name}: entries {ranges_words(ids)}, {count_words(header.content_bytes, 'byte')}"
    return Finding(offset, "block", words, facts)
