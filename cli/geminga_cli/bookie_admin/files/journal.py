"""``dump-journal``: the groups in journal files; what is damaged is reported and skipped.

The layout is ``geminga_bookie.formats.journal_v1``'s. What a bookie does about damage is decided in
``geminga_bookie.journal.replay``, and differs: a bookie must stop where this continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from crc32c import crc32c

from geminga_bookie.errors import UnknownFormat
from geminga_bookie.formats import journal_v1 as layout
from geminga_cli.bookie_admin.files.dump import dump_files
from geminga_cli.bookie_admin.files.offline_file import Content, find_ahead, only_zeros
from geminga_cli.bookie_admin.verdicts.finding import Finding
from geminga_cli.display.text import count_words, ranges_words


def dump_journals(options: argparse.Namespace) -> int:
    """Print what is in the files; returns 1 if something is wrong."""
    return dump_files(options, lambda path, file: journal_findings(path, file, options.ledger))


def journal_findings(path: str, file: Content, ledger_id: int | None = None) -> Iterator[Finding]:
    """Everything in a journal file, in order; with ``ledger_id``, its part and what is wrong.

    Raises ``UnknownFormat`` for a whole file of another kind, ``OSError``.
    """
    # Stage 1: the header of the file.
    head = file.read(0, layout.FILE_HEADER_BYTES)
    header = layout.decode_file_header(path, head)
    if header is None:
        yield Finding(0, "header", "it is not what was written, or torn", is_wrong=True)
        if len(head) < layout.FILE_HEADER_BYTES:
            return
        # The last field is the seed of the checksums of all groups. It may be sound, although the
        # header is not.
        seed = int.from_bytes(head[-4:], "big")
    else:
        seed = header.seed
        words = f"journal {header.number}, made at {header.created_ms} ms"
        yield Finding(0, "header", words, {"number": header.number, "created": header.created_ms})

    # Stage 2: group after group. ``offset`` grows in every round: to the next header that is found,
    # or by the size that a sound header announces.
    offset = layout.FILE_HEADER_BYTES
    # The number of the next group; 0 where it is unknown, at the beginning and after damage.
    expected = 0
    while offset < file.size:
        head = file.read(offset, layout.GROUP_HEADER_BYTES)
        group = layout.decode_group_header(seed, head, 0)
        if group is None:
            find = partial(layout.find_group_header, seed)
            following = find_ahead(file, offset + 1, find, layout.GROUP_HEADER_BYTES)
            yield _gap(file, offset, following)
            if following is None:
                return
            # What the groups in between were numbered is not known.
            offset, expected = following, 0
            continue
        # Groups are numbered without gaps through all files of a journal: a gap means that a group
        # is lost.
        if expected and group.number != expected:
            words = f"group {group.number} follows, where {expected} should"
            yield Finding(offset, "group", words, {"group": group.number}, is_wrong=True)
        body = file.read(offset + layout.GROUP_HEADER_BYTES, group.body_bytes)
        yield from _group(path, offset, group, body, ledger_id)
        # By the header, also where the body is damaged.
        offset += layout.GROUP_HEADER_BYTES + group.body_bytes
        expected = group.number + 1


def _gap(file: Content, offset: int, following: int | None) -> Finding:
    """What lies between ``offset`` and the next group, or the end of the file."""
    end = file.size if following is None else following
    #     group 7 | bytes that are no group | group 9    damage: something overwrote group 8
    #     group 7 | zeros                                the file was reserved, and is not full
    #     group 7 | other bytes                          a crash within a write, or damage
    facts = {"bytes": end - offset}
    size = count_words(end - offset, "byte")
    if following is not None:
        return Finding(offset, "damage", f"{size} are no group", facts, is_wrong=True)
    # A bookie allocates a journal file in advance.
    if only_zeros(file, offset):
        return Finding(offset, "end", f"{size} of zeros, reserved and never used", facts)
    words = f"{size} of a group that was being written, or is damaged: no group follows"
    return Finding(offset, "torn", words, facts, is_wrong=True)


def _group(
    path: str, offset: int, header: layout.GroupHeader, body: bytes, ledger_id: int | None
) -> Iterator[Finding]:
    """A group whose header is sound; none where nothing in it concerns ``ledger_id``."""
    facts: dict[str, object] = {"group": header.number, "bytes": header.body_bytes}
    name = f"group {header.number}"
    if len(body) < header.body_bytes:
        words = f"{name}: {header.body_bytes - len(body)} bytes of it are missing at the end"
        yield Finding(offset, "torn", words, facts, is_wrong=True)
        return
    if crc32c(body) != header.body_crc:
        words = f"{name}: its {header.body_bytes} bytes do not fit their checksum"
        yield Finding(offset, "damage", words, facts, is_wrong=True)
        return
    # The ids of entries by ledger, and the marks: fences and explicit last-add-confirmed.
    entries: dict[int, list[int]] = {}
    marks: list[layout.Mark] = []
    # The checksum fits, so these bytes are what was written: a body that cannot be read now is of a
    # newer version, or of a faulty writer.
    try:
        for adds, mark in layout.decode_body(path, body):
            for each, entry_id, _, _ in adds:
                entries.setdefault(each, []).append(entry_id)
            if mark is not None:
                marks.append(mark)
    except UnknownFormat as error:
        yield Finding(offset, "damage", f"{name}: {error}", facts, is_wrong=True)
        return
    if ledger_id is not None:
        entries = {each: ids for each, ids in entries.items() if each == ledger_id}
        # A fence has no entry, and concerns the ledger all the same.
        marks = [mark for mark in marks if mark.ledger_id == ledger_id]
        if not entries and not marks:
            return
    facts["entries"] = {str(each): ids for each, ids in entries.items()}
    said = [f"ledger {each}: entries {ranges_words(sorted(ids))}" for each, ids in entries.items()]
    for mark in marks:
        what = "fenced" if isinstance(mark, layout.Fence) else "explicit last-add-confirmed"
        said.append(f"ledger {mark.ledger_id}: {what}")
    facts["marks"] = [type(mark).__name__ + f" {mark.ledger_id}" for mark in marks]
    yield Finding(offset, "group", f"{header.number}: {'; '.join(said) or 'nothing'}", facts)
