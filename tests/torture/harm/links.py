"""Cuts the links between clusters while they replicate to each other.

A cluster's replicators find each other cluster by a relay of their own. It is cut one way or both
ways, so that what is sent waits, or it breaks: then what is on its way is lost, and no connection
can be made. One that dies is silent first, so that what was stored and is not known to be, is sent
again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import permutations
from random import Random
from typing import Self

from tests.torture.harm.wires import Relays

REST_S_MAX = 5.0
CUT_S_MIN, CUT_S_MAX = 0.5, 12.0
STOP_S_MAX = 60.0


class Cut(Enum):
    """What is done to a link."""

    BOTH_WAYS = "silent both ways"
    REQUESTS = "silent, what is sent"
    ANSWERS = "silent, the answers"
    BROKEN = "broken"
    DYING = "silent, then broken"


@dataclass(frozen=True, slots=True)
class LinkCut:
    """After a rest ``links`` are cut, all at once, for so long."""

    rest_s: float
    cut: Cut
    links: tuple[str, ...]
    lasts_s: float


def link(source: str, target: str) -> str:
    """The name of the link by which ``source`` replicates to ``target``."""
    return f"{source} to {target}"


def link_cuts(
    chance: Random, clusters: Sequence[str], kinds: Sequence[Cut] = tuple(Cut)
) -> Iterator[LinkCut]:
    """Cuts for ever: each link alone, and all links of each cluster, each kind in random order,
    again and again."""
    pairs = [*permutations(clusters, 2)]
    alone = [(link(*pair),) for pair in pairs]
    isolated = [tuple(link(*pair) for pair in pairs if name in pair) for name in clusters]
    while True:
        targets = [(cut, links) for cut in kinds for links in (*alone, *isolated)]
        for cut, links in chance.sample(targets, len(targets)):
            yield LinkCut(
                chance.random() * REST_S_MAX, cut, links, chance.uniform(CUT_S_MIN, CUT_S_MAX)
            )


class Cutter:
    """Cuts links while it is entered, on a thread of its own; at its end all are whole."""

    def __init__(self, relays: Relays, cuts: Iterator[LinkCut]) -> None:
        self.counts: Counter[str] = Counter()
        self._relays = relays
        self._cuts = cuts
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cutter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(STOP_S_MAX)
        assert not self._thread.is_alive(), "the cutter did not end"

    def _run(self) -> None:
        for each in self._cuts:
            if self._is_over.wait(each.rest_s):
                return
            self.counts[each.cut.value] += len(each.links)
            if each.cut is not Cut.BROKEN:
                self._silence(each)
            if each.cut is Cut.DYING:
                self._is_over.wait(each.lasts_s / 2)
            if each.cut in (Cut.BROKEN, Cut.DYING):
                for name in each.links:
                    self._relays.refuse(name)
            self._is_over.wait(each.lasts_s)
            for name in each.links:
                self._relays.heal(name)

    def _silence(self, cut: LinkCut) -> None:
        for name in cut.links:
            self._relays.cut(
                name,
                requests=cut.cut in (Cut.BOTH_WAYS, Cut.REQUESTS),
                answers=cut.cut is not Cut.REQUESTS,
            )
