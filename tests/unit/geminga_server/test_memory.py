"""A server's memory habits are set, in a process of its own: they last as long as it does."""

from __future__ import annotations

import subprocess
import sys


def test_the_collector_looks_seldom_and_not_at_what_was_imported() -> None:
    source = """
import gc
from geminga_server.memory import COLLECTOR_THRESHOLDS, tune_memory
tune_memory()
assert gc.get_threshold() == COLLECTOR_THRESHOLDS
assert gc.get_freeze_count() > 1000
"""
    subprocess.run([sys.executable, "-c", source], check=True)


def test_another_c_library_than_glibc_is_left_alone() -> None:
    source = """
import ctypes
ctypes.CDLL = lambda name: object()
from geminga_server.memory import tune_memory
tune_memory()
"""
    subprocess.run([sys.executable, "-c", source], check=True)
