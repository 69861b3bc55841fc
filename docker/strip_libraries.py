"""Cuts off what no program needs to run from the shared libraries below a folder.

``python strip_libraries.py FOLDER``. Wheels bring symbols and debugging sections: 28 of the 40 MB
of libraries in our image. They stand behind everything that is loaded, so the file ends where the
last loaded byte does, and its table of sections, which only debuggers and linkers read, is declared
empty. binutils' ``strip`` saves as much, but would be one more thing to download.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

# ELF, 64 bits, little-endian: what wheels for x86-64 and ARM64 bring.
MAGIC = b"\x7fELF\x02\x01"
# From byte 32 of the file on:
# +-------------+-------------+-------+-------------+-----------------+-----------------+-------+
# | segments at | sections at | flags | header size | a segment: size | a section: size | names |
# |    u64      |    u64      |  u32  |     u16     | u16, number u16 | u16, number u16 |  u16  |
# +-------------+-------------+-------+-------------+-----------------+-----------------+-------+
HEADER = struct.Struct("<QQIHHHHHH")
HEADER_AT = 32
# A segment: type, flags, offset in the file, two addresses, size in the file; more is not read.
SEGMENT = struct.Struct("<IIQQQQ")


def strip(library: Path) -> int:
    """Cut one library; returns by how many bytes it is shorter. Any other file is left alone."""
    with library.open("r+b") as file:
        content = file.read()
        if not content.startswith(MAGIC):
            return 0
        header: tuple[int, ...] = HEADER.unpack_from(content, HEADER_AT)
        segments_at, _, flags, header_size, size, count, *_ = header
        end = segments_at + size * count
        for number in range(count):
            segment: tuple[int, ...] = SEGMENT.unpack_from(content, segments_at + number * size)
            end = max(end, segment[2] + segment[5])
        file.seek(HEADER_AT)
        file.write(HEADER.pack(segments_at, 0, flags, header_size, size, count, 0, 0, 0))
        file.truncate(end)
    return len(content) - end


def main() -> None:
    """Cut every library below the folder that is named, and say what that gave."""
    saved = sum(strip(path) for path in Path(sys.argv[1]).rglob("*.so*") if path.is_file())
    print(f"libraries are {saved / 1e6:.1f} MB shorter")


if __name__ == "__main__":
    main()
