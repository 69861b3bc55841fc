"""Reads a regular expression into a tree: the part of the language that RE2 and Java share.

What they do not share, or what no automaton can do, is refused as unsupported rather than read in
one of two ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from geminga_protocol.pulsar.errors import InvalidPattern, UnsupportedPattern

# Parentheses within parentheses: each is a call within a call.
DEPTH_MAX = 50
# The largest count in x{n,m}, as RE2 has it.
REPEAT_MAX = 1_000

Ranges = tuple[tuple[str, str], ...]

_DIGITS: Ranges = (("0", "9"),)
_WORDS: Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACES: Ranges = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_LINE_ENDS: Ranges = (("\n", "\n"),)
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a"}
_QUANTIFIERS = "*+?"


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of ``ranges`` (first and last), or with ``is_negated`` out of no one."""

    ranges: Ranges
    is_negated: bool = False

    def take(self, char: str, *, ignores_case: bool) -> bool:
        """Whether ``char`` is one of them."""
        forms = {char, char.lower(), char.upper()} if ignores_case else {char}
        is_within = any(low <= form <= high for form in forms for low, high in self.ranges)
        return is_within is not self.is_negated


class Anchor(Enum):
    """A place that must be the name's beginning or end."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Any one of these."""

    choices: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``part`` from ``least`` to ``most`` times; None: as often as it comes."""

    part: Node
    least: int
    most: int | None


Node = Chars | Anchor | Sequence | Alternatives | Repeat


def parse_pattern(pattern: str) -> tuple[Node, bool]:
    """The tree of ``pattern``, and whether it ignores case.

    Raises ``InvalidPattern``, ``UnsupportedPattern``.
    """
    ignores_case = pattern.startswith("(?i)")
    reader = _Reader(pattern.removeprefix("(?i)"))
    tree = reader.alternatives(depth=0)
    if not reader.is_done:
        raise InvalidPattern("it has a ) without a (")
    return tree, ignores_case


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._pattern)

    def _peek(self, word: str) -> bool:
        return self._pattern.startswith(word, self._at)

    def _skip(self, word: str) -> bool:
        if self._peek(word):
            self._at += len(word)
            return True
        return False

    def _next(self, within: str) -> str:
        if self.is_done:
            raise InvalidPattern(f"it ends within {within}")
        self._at += 1
        return self._pattern[self._at - 1]

    def alternatives(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise UnsupportedPattern("it has too many parentheses within each other")
        choices = [self._sequence(depth)]
        while self._skip("|"):
            choices.append(self._sequence(depth))
        return choices[0] if len(choices) == 1 else Alternatives(tuple(choices))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.is_done and not self._peek("|") and not self._peek(")"):
            if self._skip("\\Q"):
                parts += self._quoted()
            else:
                parts.append(self._repeated(self._atom(depth)))
        return Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        end = self._pattern.find("\\E", self._at)
        text = self._pattern[self._at :] if end < 0 else self._pattern[self._at : end]
        self._at = len(self._pattern) if end < 0 else end + len("\\E")
        parts: list[Node] = [_one(char) for char in text]
        if parts:
            parts[-1] = self._repeated(parts[-1])
        return parts

    def _atom(self, depth: int) -> Node:
        char = self._next("a pattern")
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case ".":
                return Chars(_LINE_ENDS, is_negated=True)
            case "^":
                return Anchor.START
            case "$":
                return Anchor.END
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise InvalidPattern(f"there is nothing before {char} to repeat")
            case "{":
                raise UnsupportedPattern("a { that is not a count is written \\{")
            case _:
                return _one(char)

    def _group(self, depth: int) -> Node:
        if self._skip("?:"):
            pass
        elif self._peek("?P<") or (self._peek("?<") and not self._looks_behind()):
            if ">" not in self._pattern[self._at :]:
                raise InvalidPattern("a group's name does not end")
            self._at = self._pattern.index(">", self._at) + 1
        elif self._peek("?"):
            raise UnsupportedPattern("of the groups with (? only (?: and names are served")
        tree = self.alternatives(depth + 1)
        if not self._skip(")"):
            raise InvalidPattern("it has a ( without a )")
        return tree

    def _looks_behind(self) -> bool:
        return self._peek("?<=") or self._peek("?<!")

    def _repeated(self, part: Node) -> Node:
        bounds = self._count()
        if bounds is None:
            return part
        self._skip("?")  # as little as possible: for the whole of a name that is no difference
        if not self.is_done and (self._pattern[self._at] in _QUANTIFIERS or self._peek("{")):
            raise UnsupportedPattern("a repetition is repeated")
        return Repeat(part, *bounds)

    def _count(self) -> tuple[int, int | None] | None:
        if self._skip("*"):
            return 0, None
        if self._skip("+"):
            return 1, None
        if self._skip("?"):
            return 0, 1
        if not self._skip("{"):
            return None
        end = self._pattern.find("}", self._at)
        text = self._pattern[self._at : end] if end >= 0 else ""
        self._at = end + 1
        return _bounds(text)

    def _escape(self) -> Node:
        char = self._next("an escape")
        if char.lower() in _CLASSES:
            return Chars(_CLASSES[char.lower()], is_negated=char.isupper())
        if char == "A":
            return Anchor.START
        if char == "z":
            return Anchor.END
        return _one(self._escaped(char))

    def _escaped(self, char: str) -> str:
        """The character that ``char`` behind a backslash stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        if char.isascii() and char.isalnum():
            raise UnsupportedPattern(f"\\{char} is not served")
        return char

    def _hexadecimal(self) -> str:
        if self._skip("{"):
            end = self._pattern.find("}", self._at)
            digits = self._pattern[self._at : max(end, self._at)]
            self._at = end + 1
        else:
            digits = self._pattern[self._at : self._at + 2]
            self._at += 2
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise InvalidPattern("\\x wants two hexadecimal digits, or some in braces") from None

    def _class(self) -> Node:
        is_negated = self._skip("^")
        ranges: list[tuple[str, str]] = []
        while not ranges or not self._peek("]"):
            if self._peek("[") or self._peek("&&"):
                raise UnsupportedPattern("classes within classes are not served")
            low = self._class_char()
            if isinstance(low, tuple):
                ranges += low
                continue
            high: str | Ranges = low
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                high = self._class_char()
            if isinstance(high, tuple) or high < low:
                raise InvalidPattern("a range in [] ends before it begins")
            ranges.append((low, high))
        self._at += 1
        return Chars(tuple(ranges), is_negated=is_negated)

    def _class_char(self) -> str | Ranges:
        char = self._next("[]")
        if char != "\\":
            return char
        char = self._next("an escape")
        if char in _CLASSES:
            return _CLASSES[char]
        if char.lower() in _CLASSES:
            raise UnsupportedPattern(f"\\{char} within [] is not served")
        return self._escaped(char)


def _one(char: str) -> Chars:
    return Chars(((char, char),))


def _bounds(text: str) -> tuple[int, int | None]:
    low, comma, high = text.partition(",")
    if not (low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit()))):
        raise UnsupportedPattern("a { that is not a count is written \\{")
    least = int(low)
    most = (int(high) if high else None) if comma else least
    if max(least, most or 0) > REPEAT_MAX:
        raise UnsupportedPattern(f"a count is larger than {REPEAT_MAX}")
    if most is not None and most < least:
        raise InvalidPattern("a count ends before it begins")
    return least, most
