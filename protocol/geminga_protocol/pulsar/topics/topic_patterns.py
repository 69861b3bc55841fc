"""Regular expressions for names of topics, matched in time proportional to the name's length.

A pattern comes from a client, and a broker matches it against every topic of a namespace. With a
backtracking matcher such as Python's ``re`` one hostile pattern could keep the broker busy for
hours. Patterns are therefore compiled into automata, as in RE2, which upstream tries first: a
nondeterministic automaton by Thompson's construction, whose deterministic states are made when a
name first leads to them. What no automaton can match (lookaround, back references) raises
``UnsupportedPattern``, and the client then matches the pattern itself.

The language is what RE2 and Java have in common (``pattern_syntax``). Names match as a whole.
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

# Nodes of one automaton. Repetitions are written out, so x{900} alone takes about this many.
NODES_MAX = 2_000
# Deterministic states kept of one pattern. A hostile pattern has exponentially many; beyond this
# number all are dropped and made again, which costs time for each character but bounds the memory.
STATES_MAX = 1_000

# The state that no character leads out of.
_DEAD = -1


# The automaton of ``a|b*``; nodes in parentheses consume nothing, and some of them are left out:
#
#               ┌─▶ a ──▶ (2) ─────────────┐
#     (first) ──┤                          ├─▶ (last)
#               └─▶ (loop) ──▶ (end) ──────┘
#                    ▲  │
#                    └b◀┘
@dataclass(slots=True)
class _Nodes:
    """The nondeterministic automaton, as columns: a node is an index into the three lists."""

    # The characters of which the node consumes one; None for a node that consumes nothing.
    chars: list[Chars | None] = field(default_factory=list)
    # The nodes that can come next.
    following: list[list[int]] = field(default_factory=list)
    # The end of the name at which alone the node can be passed; None for any place.
    anchors: list[Anchor | None] = field(default_factory=list)

    def add(self, chars: Chars | None = None, anchor: Anchor | None = None) -> int:
        if len(self.chars) >= NODES_MAX:
            raise UnsupportedPattern("it repeats too much")
        self.chars.append(chars)
        self.anchors.append(anchor)
        self.following.append([])
        return len(self.chars) - 1


class TopicPattern:
    """A compiled pattern. The constructor raises ``InvalidPattern`` or ``UnsupportedPattern``."""

    def __init__(self, pattern: str) -> None:
        syntax, self._ignores_case = parse_pattern(pattern)
        self._nodes = _Nodes()
        # ``_first`` and ``_last`` frame the whole: a name matches where its last character leads to
        # a set of nodes from which ``_last`` can be reached without a further character.
        self._first = self._nodes.add()
        self._last = self._build(syntax, self._first)
        self._forget_states()

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole of ``name``."""
        # Between names only: within one, states are indexes into what would be dropped.
        if len(self._states) > STATES_MAX:
            self._forget_states()
        # Local names for the loop, which runs once for each character of each topic of a namespace.
        steps = self._steps
        state = self._begin
        for char in name:
            following = steps[state].get(char)
            if following is None:
                following = self._step(state, char)
            if following == _DEAD:
                return False
            state = following
        # At the end of the name, anchors of the end can be passed too.
        reached = self._sets[state]
        return self._last in reached or self._last in self._closure(
            reached, is_start=not name, is_end=True
        )

    # Building the nondeterministic automaton

    def _build(self, node: Node, begin: int) -> int:
        """Add the nodes for ``node`` behind ``begin``; return the node where a match of it ends."""
        nodes = self._nodes
        match node:
            case Chars():
                # A node that consumes has exactly one follower, a node that consumes nothing: so
                # nodes can be joined without looking at what they are.
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
                    # All choices begin at the same node, and lead to the same end.
                    nodes.following[self._build(choice, begin)].append(end)
                return end
            case Repeat():
                return self._build_repeat(node, begin)

    def _build_repeat(self, node: Repeat, begin: int) -> int:
        nodes = self._nodes
        # What must be there, one copy after the other.
        for _ in range(node.least):
            begin = self._build(node.part, begin)
        end = nodes.add()
        # Then either a loop, or copies from each of which a way leads to the end.
        if node.most is None:
            loop = nodes.add()
            nodes.following[begin].append(loop)
            nodes.following[self._build(node.part, loop)].append(loop)
            nodes.following[loop].append(end)
            return end
        # The way around comes before each optional copy: x{0,2} is (x(x)?)?.
        for _ in range(node.most - node.least):
            nodes.following[begin].append(end)
            begin = self._build(node.part, begin)
        nodes.following[begin].append(end)
        return end

    # Running it: deterministic states are sets of nodes, made on demand

    def _forget_states(self) -> None:
        """Drop all deterministic states but the first."""
        # A state is an index into ``_sets`` (its nodes) and ``_steps`` (the next state by
        # character, as far as it is known); ``_states`` finds the state of a set.
        self._states: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int]] = []
        self._steps: list[dict[str, int]] = []
        # Only this closure passes anchors of the start: all later ones are behind a character.
        self._begin = self._state(self._closure((self._first,), is_start=True))

    def _state(self, nodes: frozenset[int]) -> int:
        """The state of a set of nodes, made where it is new."""
        # The empty set: no continuation of the name can match.
        if not nodes:
            return _DEAD
        state = self._states.get(nodes)
        if state is None:
            state = self._states[nodes] = len(self._sets)
            self._sets.append(nodes)
            self._steps.append({})
        return state

    def _step(self, state: int, char: str) -> int:
        """Find where ``char`` leads from ``state``, and keep it for the next time."""
        # Costs time in proportion to the nodes of the state, once for each state and character: the
        # next name that leads here only looks it up.
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
        """All nodes that can be reached from ``begin`` without consuming a character."""
        reached: set[int] = set()
        ahead = list(begin)
        # Each node enters ``reached`` once, so that a loop of nodes that consume nothing, as of
        # (a*)*, ends.
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
