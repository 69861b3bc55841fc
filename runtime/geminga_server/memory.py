"""Settings of the memory allocator and the garbage collector, made once when a server starts.

Brokers and bookies allocate and free blocks of some hundred KiB all the time, and have long queues
of small tuples that never form a cycle. Neither glibc's defaults nor Python's suit that.
"""

from __future__ import annotations

import ctypes
import gc

# mallopt(3): blocks up to 32 MiB come from the heap, and the heap keeps 64 MiB at its top. By
# default each larger block is mapped and unmapped, at a page fault for each 4 KiB. Batched publish
# of 1 KiB messages took 6.0 us of CPU each, and 4.4 us with this (medians of alternating runs). Two
# arenas at most: glibc would give the threads that sync and compress one each, up to eight for each
# core, and every arena keeps freed memory.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
MALLOC_OPTIONS = ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 64 << 20), (M_ARENA_MAX, 2))

# The cyclic collector looks at all young containers after so many allocations (700 by default), and
# at everything after 20 x 50 times that: a full entry cache is a million tuples.
COLLECTOR_THRESHOLDS = (50_000, 20, 50)


def tune_memory() -> None:
    """Make the settings; call it when everything has been imported."""
    # First: what is garbage now would be kept for good by ``freeze``.
    gc.collect()
    gc.freeze()  # modules and classes live until the end: collections need not visit them
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # only glibc has it
        for option, value in MALLOC_OPTIONS:
            mallopt(option, value)
