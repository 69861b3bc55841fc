"""Judges the tests by bugs planted on purpose: a patch each, tried one at a time.

    python -m tests.simulation.bugs.mutants tests/simulation/bugs/*.patch --seeds 1000
    python -m tests.simulation.bugs.mutants tests/simulation/bugs/*.patch --unit

Each patch is applied to a checkout of HEAD of its own, stories are told until a seed fails, and the
patch is taken back; with ``--unit`` the unit tests of the rooms that it touches are run instead. A
line ``Stories: NAME,...`` before a patch names the stories that come to its code: only these are
told, so many seeds of each as it has among all.

Prints a line for each: which seed of which story found it, after how many seeds, or that it
survived. A bug that only this finds becomes a plant in `planted.py`, told by the story that found
it; one that survives shows what the stories do not come to.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.project_files import ROOT

STORIES = "Stories: "
# A mutant may never end; 1,000 seeds take less than ten minutes of one core.
SEEDS_TIMEOUT_S = 1800
UNIT_TIMEOUT_S = 1200
# A test that its mutant hangs has failed by then.
TEST_TIMEOUT_S = 60


class Checkout:
    """A work tree of the repository's HEAD, to be entered; its packages come before installed ones.

    One tree for all mutants: what is compiled of the unchanged modules is kept.
    """

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="geminga-mutants-")
        self.path = Path(self._folder.name) / "tree"
        _git(ROOT, "worktree", "add", "--quiet", "--detach", str(self.path), "HEAD")
        rooms = [path.parent for path in self.path.glob("*/*/__init__.py")]
        paths = [self.path, *(room.parent for room in rooms if room.parent.name != "tests")]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sorted({str(path) for path in paths})),
            "PYTHONHASHSEED": "0",
        }
        return self

    def __exit__(self, *_: object) -> None:
        _git(ROOT, "worktree", "remove", "--force", str(self.path))
        self._folder.cleanup()

    def apply(self, patch: Path) -> list[str]:
        """Apply a patch to HEAD; returns the files that it touches."""
        _git(self.path, "checkout", "--quiet", ".")
        _git(self.path, "apply", "--recount", str(patch.resolve()))
        return _git(self.path, "diff", "--name-only").split()

    def run(self, arguments: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """``python`` with ``arguments``: its exit code (1 if it took too long) and its output."""
        with tempfile.TemporaryFile("w+") as output:
            # A session of its own: what never ends is ended with the processes that it started.
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.path,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = 1
                output.write(f"not over after {timeout_s:.0f} s\n")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return code, output.read()


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def unit_tests_of(files: Sequence[str]) -> list[list[str]]:
    """The unit tests that mirror these files, ``bookie/geminga_bookie/journal/x.py``, and behind
    them all of their rooms: most bugs are found by the few that know the module."""
    mirrors = sorted({"/".join(("tests/unit", *Path(file).parts[1:-1])) for file in files})
    rooms = sorted({f"tests/unit/{Path(file).parts[1]}" for file in files})
    steps = ([each for each in mirrors if (ROOT / each).is_dir()], rooms)
    return [list(step) for step in dict.fromkeys(map(tuple, steps)) if step]


def stories_of(patch: Path) -> str:
    """The stories that a patch names, with commas between; "" for none."""
    first, _, _ = patch.read_text().partition("\n")
    return first.removeprefix(STORIES) if first.startswith(STORIES) else ""


def judge(checkout: Checkout, patch: Path, options: argparse.Namespace) -> str:
    """Try one mutant; returns what found it, in words."""
    files = checkout.apply(patch)
    if options.unit:
        words = ["-m", "pytest", "-q", "-x", f"--timeout={TEST_TIMEOUT_S}", "-m", "not full"]
        code, output = 0, ""
        for tests in unit_tests_of(files):
            code, output = checkout.run([*words, *tests], UNIT_TIMEOUT_S)
            if code:
                break
        lines = [
            line for line in output.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))
        ]
    else:
        words = ["-m", "tests.simulation", "--all", "--seeds", str(options.seeds)]
        words += ["--first", str(options.first), "--jobs", str(options.jobs)]
        only = options.only or stories_of(patch)
        words += ["--only", only] if only else []
        code, output = checkout.run(words, SEEDS_TIMEOUT_S)
        lines = [line for line in output.splitlines() if line]
    if not code:
        return "SURVIVED"
    return " | ".join(lines[:1] + lines[-1:])[:300] if lines else f"exit {code}: {output[-300:]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all; returns 1 if one survived."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.bugs.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("patches", nargs="+", type=Path, metavar="PATCH")
    parser.add_argument("--unit", action="store_true", help="run unit tests instead of seeds")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--only", metavar="STORY,...", help="of all stories, tell these alone")
    options = parser.parse_args(arguments)
    survivors = 0
    with Checkout() as checkout:
        for patch in options.patches:
            began_s = time.monotonic()
            verdict = judge(checkout, patch, options)
            survivors += verdict == "SURVIVED"
            print(f"{patch.stem}: {verdict} ({time.monotonic() - began_s:.0f} s)", flush=True)
    found = len(options.patches) - survivors
    print(f"{found} of {len(options.patches)} found")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
