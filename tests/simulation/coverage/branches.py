"""Tells stories in processes that count which error branches of the tested code they come to, and
what happens in them that is rare (``sometimes.py``, ``overflows.py``).

``survey`` has each process tell its part of the seeds of every story. This module is what such a
process runs, too: it may load nothing of what is tested before counting has begun.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.project_files import ROOT
from tests.simulation.coverage.error_branches import Branch, ErrorBranches, branches_of

PACKAGES = (
    "geminga",
    "geminga_autorecovery",
    "geminga_bookie",
    "geminga_broker",
    "geminga_cluster",
    "geminga_functions",
    "geminga_ledger",
    "geminga_proxy",
)
# Text is hashed in the same way each time, as where a single seed is told.
HASH_SEED = "PYTHONHASHSEED"


@dataclass(slots=True)
class Survey:
    """``places`` has every branch that there is, ``seeds`` how many seeds of each story came to it;
    ``events`` how many seeds of a story came to an event (``module: words``) or had something full.
    ``failed`` are seeds that failed, with the errors."""

    places: dict[Branch, str] = field(default_factory=dict[Branch, str])
    seeds: dict[Branch, Counter[str]] = field(default_factory=dict[Branch, "Counter[str]"])
    events: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])
    failed: list[str] = field(default_factory=list[str])

    def never_entered(self) -> list[Branch]:
        """The branches that no seed came to, in the order of the source."""
        return sorted(branch for branch in self.places if branch not in self.seeds)

    def add(self, other: Survey) -> None:
        """Take in what another process has seen."""
        self.places |= other.places
        for branch, stories in other.seeds.items():
            self.seeds.setdefault(branch, Counter()).update(stories)
        for story, events in other.events.items():
            self.events.setdefault(story, Counter()).update(events)
        self.failed += other.failed

    def encode(self) -> str:
        """As JSON."""
        rows: list[list[object]] = [
            [*branch, place, self.seeds.get(branch, {})]
            for branch, place in sorted(self.places.items())
        ]
        return json.dumps(
            {"failed": self.failed, "events": self.events, "branches": rows}, indent=0
        )

    @classmethod
    def decode(cls, text: str) -> Survey:
        """What ``encode`` gave."""
        told = json.loads(text)
        survey = cls(failed=told["failed"])
        survey.events = {story: Counter(events) for story, events in told["events"].items()}
        for module, function, what, place, stories in told["branches"]:
            branch = Branch(module, function, what)
            survey.places[branch] = place
            if stories:
                survey.seeds[branch] = Counter(stories)
        return survey


def survey(seeds: Mapping[str, range], jobs: int) -> Survey:
    """Tell these seeds of these stories in so many processes. Raises ``CalledProcessError``."""
    parts = [
        {name: [few[at] for at in range(part, len(few), jobs)] for name, few in seeds.items()}
        for part in range(jobs)
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", __name__, json.dumps(part)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, HASH_SEED: "0"},
        )
        for part in parts
    ]
    whole = Survey()
    for process in processes:
        output, _ = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        whole.add(Survey.decode(output))
    return whole


def main(told: str) -> None:
    """Tell the seeds that ``told`` lists by story, and print what was entered."""
    branches = ErrorBranches(PACKAGES)
    branches.install()
    # Only now: what is tested is loaded by these.
    from tests.simulation.coverage.overflows import counting_overflows
    from tests.simulation.coverage.sometimes import EventCounter
    from tests.simulation.stories import tell_story

    from geminga_scenarios.seed_run import RunOptions

    found = Survey()
    for name, seeds in json.loads(told).items():
        for seed in seeds:
            before = branches.entered.copy()
            with EventCounter() as seen, counting_overflows() as full:
                result = tell_story(name, seed, RunOptions())
            events = found.events.setdefault(name, Counter())
            events.update({f"{module}: {event}": 1 for module, event in seen})
            events.update({overflow.value: 1 for overflow, count in full.items() if count})
            if result.failure is not None:
                found.failed.append(f"{name}, seed {seed}: {result.failure}")
            for branch, count in branches.entered.items():
                if count > before[branch]:
                    found.seeds.setdefault(branch, Counter())[name] += 1
    found.places = branches_of(PACKAGES)
    sys.stdout.write(found.encode())


if __name__ == "__main__":
    main(sys.argv[1])
