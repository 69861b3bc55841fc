"""Regular expressions for names of topics, matched in time that grows with the name's length only.

A pattern comes from a client, and a broker tries it on every topic of a namespace: one that goes
back and forth for ever must not exist. Patterns are therefore turned into automata (Thompson's
construction, the deterministic states made when they are first met), as in RE2, which upstream
uses first. What an automaton cannot do (looking around, references back) raises
``UnsupportedPattern``: clients match such a pattern themselves.

The language is what RE2 and Java have in common; a name matches as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from geminga_protocol.pulsar.errors import UnsupportedPattern
from geminga_protocol.pulsar.topics.pattern_syntax import (
    Alternatives,
    Anchor,
    Chars,
    Node,
    Repeat,
    Sequence,
    parse_pattern,
)

# Positions in a pattern whose repetitions are written out: x{1000} has a thousand.
NODES_MAX = 2_000
# Sets of such positions kept at once; with more, all are forgotten and made again.
STATES_MAX = 1_000

_DEAD = -1


@dataclass(slots=True)
class _Nodes:
    """The automaton: for each node what it takes, and where it goes on.

    A node without ``chars`` takes nothing; it goes on everywhere in ``following``, where it stands
    for an ``anchor`` only at that end of the name.
    """

    chars: list[Chars | None] = field(default_factory=list)
    following: list[list[int]] = field(default_factory=list)
    anchors: list[Anchor | None] = field(default_factory=list)

    def add(self, chars: Chars | None = None, anchor: Anchor | None = None) -> int:
        if len(self.chars) >= NODES_MAX:
            raise UnsupportedPattern("it repeats too much")
        self.chars.append(chars)
        self.anchors.append(anchor)
        self.following.append([])
        return len(self.chars) - 1


class TopicPattern:
    """A compiled pattern. Raises ``InvalidPattern``, ``UnsupportedPattern`` where it cannot be."""

    def __init__(self, pattern: str) -> None:
        syntax, self._ignores_case = parse_pattern(pattern)
        self._nodes = _Nodes()
        self._first = self._nodes.add()
        self._last = self._build(syntax, self._first)
        self._forget_states()

    def matches(self, name: str) -> bool:
        """Whether the whole of ``name`` is what the pattern describes."""
        if len(self._states) > STATES_MAX:
            self._forget_states()
        steps = self._steps
        state = self._begin
        for char in name:
            following = steps[state].get(char)
            if following is None:
                following = self._step(state, char)
            if following == _DEAD:
                return False
            state = following
        return self._is_end(state, is_empty=not name)

    # Building

    def _build(self, node: Node, begin: int) -> int:
        """Add nodes for ``node`` behind ``begin``; returns the one where it ends."""
        nodes = self._nodes
        match node:
            case Chars():
                taken = nodes.add(chars=node)
                nodes.following[begin].append(taken)
                end = nodes.add()
                nodes.following[taken].append(end)
                return end
            case Anchor():
                anchor = nodes.add(anchor=node)
                nodes.following[begin].append(anchor)
                end = nodes.add()
                nodes.following[anchor].append(end)
                return end
            case Sequence():
                for part in node.parts:
                    begin = self._build(part, begin)
                return begin
            case Alternatives():
                end = nodes.add()
                for choice in node.choices:
                    nodes.following[self._build(choice, begin)].append(end)
                return end
            case Repeat():
                return self._build_repeat(node, begin)

    def _build_repeat(self, node: Repeat, begin: int) -> int:
        nodes = self._nodes
        for _ in range(node.least):
            begin = self._build(node.part, begin)
        end = nodes.add()
        if node.most is None:
            loop = nodes.add()
            nodes.following[begin].append(loop)
            nodes.following[self._build(node.part, loop)].append(loop)
            nodes.following[loop].append(end)
            return end
        for _ in range(node.most - node.least):
            nodes.following[begin].append(end)
            begin = self._build(node.part, begin)
        nodes.following[begin].append(end)
        return end

    # Running

    def _forget_states(self) -> None:
        self._states: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int]] = []
        self._steps: list[dict[str, int]] = []
        self._begin = self._state(self._closure((self._first,), is_start=True))

    def _state(self, nodes: frozenset[int]) -> int:
        if not nodes:
            return _DEAD
        state = self._states.get(nodes)
        if state is None:
            state = self._states[nodes] = len(self._sets)
            self._sets.append(nodes)
            self._steps.append({})
        return state

    def _step(self, state: int, char: str) -> int:
        taken = [
            following
            for node in self._sets[state]
            if (chars := self._nodes.chars[node]) is not None
            and chars.take(char, ignores_case=self._ignores_case)
            for following in self._nodes.following[node]
        ]
        following = self._steps[state][char] = self._state(self._closure(taken))
        return following

    def _closure(
        self, begin: Iterable[int], *, is_start: bool = False, is_end: bool = False
    ) -> frozenset[int]:
        """All nodes reached from ``begin`` without taking a character."""
        reached: set[int] = set()
        ahead = list(begin)
        while ahead:
            node = ahead.pop()
            if node in reached:
                continue
            reached.add(node)
            anchor = self._nodes.anchors[node]
            is_open = (
                anchor is None
                or (anchor is Anchor.START and is_start)
                or (anchor is Anchor.END and is_end)
            )
            if self._nodes.chars[node] is None and is_open:
                ahead += self._nodes.following[node]
        return frozenset(reached)

    def _is_end(self, state: int, *, is_empty: bool) -> bool:
        reached = self._sets[state]
        return self._last in reached or self._last in self._closure(
            reached, is_start=is_empty, is_end=True
        )
