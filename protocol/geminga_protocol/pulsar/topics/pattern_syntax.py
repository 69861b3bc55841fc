"""Parses a regular expression into a tree, in the language that RE2 and Java have in common.

Syntax that the two read differently, or that no automaton can match, is refused as unsupported: a
broker that guessed would send other topics than its client expects.

    alternatives   sequence | sequence ...
    sequence       an atom and its repetition, one after the other; \\Q...\\E is plain text
    repetition     * + ? {n} {n,} {n,m}, each also with ? behind it
    atom           a character, an escape, a class in [], an anchor, or ( alternatives )
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from geminga_protocol.pulsar.errors import InvalidPattern, UnsupportedPattern

# Nested parentheses: the parser calls itself for each, and Python's stack is finite.
DEPTH_MAX = 50
# The largest count in x{n,m}, as RE2 has it.
REPEAT_MAX = 1_000
# Zeros in front included. Python converts no text of more than 4,300 digits.
_REPEAT_DIGITS_MAX = 9

Ranges = tuple[tuple[str, str], ...]

_DIGITS: Ranges = (("0", "9"),)
_WORDS: Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACES: Ranges = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_LINE_ENDS: Ranges = (("\n", "\n"),)
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a"}
_QUANTIFIERS = "*+?"
# Behind \x. ``int`` alone would also take a sign, spaces and underscores.
_HEXADECIMAL = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\}")


# The tree of ``a(b|[0-9])*``:
#
#     Sequence
#     ├── Chars a
#     └── Repeat 0 to any number
#         └── Alternatives
#             ├── Sequence: Chars b
#             └── Sequence: Chars 0-9
@dataclass(frozen=True, slots=True)
class Chars:
    """One character: within one of ``ranges`` (both ends included), or ``is_negated``, in none."""

    ranges: Ranges
    is_negated: bool = False

    def take(self, char: str, *, ignores_case: bool) -> bool:
        """Whether ``char`` is such a character."""
        forms = {char, char.lower(), char.upper()} if ignores_case else {char}
        is_within = any(low <= form <= high for form in forms for low, high in self.ranges)
        return is_within is not self.is_negated


class Anchor(Enum):
    """The beginning or the end of the name; consumes no character."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Sequence:
    """The parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of the choices."""

    choices: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``part`` repeated ``least`` to ``most`` times; None stands for no upper bound."""

    part: Node
    least: int
    most: int | None


Node = Chars | Anchor | Sequence | Alternatives | Repeat


def parse_pattern(pattern: str) -> tuple[Node, bool]:
    """Parse ``pattern``; return its tree and whether it ignores case.

    Raises ``InvalidPattern`` or ``UnsupportedPattern``.
    """
    # Of the flags only this one is known, and only at the beginning, where it holds for all.
    ignores_case = pattern.startswith("(?i)")
    reader = _Reader(pattern.removeprefix("(?i)"))
    tree = reader.alternatives(depth=0)
    # ``alternatives`` stops at a ) that is not its own. At depth 0 there is no ( that it could
    # close.
    if not reader.is_done:
        raise InvalidPattern("it has a ) without a (")
    return tree, ignores_case


class _Reader:
    """A recursive descent parser: each method reads one rule of the grammar from ``_at`` on."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        # Index of the next character.
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
        # Ends before a | or a ), which belong to the rule that called this one.
        while not self.is_done and not self._peek("|") and not self._peek(")"):
            if not self._skip("\\Q"):
                parts.append(self._repeated(self._atom(depth)))
                continue
            # Plain text up to \E, or to the end. A repetition behind it is of its last character.
            end = self._pattern.find("\\E", self._at)
            text = self._pattern[self._at :] if end < 0 else self._pattern[self._at : end]
            self._at = len(self._pattern) if end < 0 else end + len("\\E")
            parts += map(_one, text)
            if text:
                parts[-1] = self._repeated(parts[-1])
        return Sequence(tuple(parts))

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
        elif self._peek("?P<") or (
            # Not (?<= and (?<!, which look behind.
            self._peek("?<") and not self._peek("?<=") and not self._peek("?<!")
        ):
            # The name of a group does not change what it matches.
            if ">" not in self._pattern[self._at :]:
                raise InvalidPattern("a group's name does not end")
            self._at = self._pattern.index(">", self._at) + 1
        elif self._peek("?"):
            raise UnsupportedPattern("of the groups with (? only (?: and names are served")
        tree = self.alternatives(depth + 1)
        if not self._skip(")"):
            raise InvalidPattern("it has a ( without a )")
        return tree

    def _repeated(self, part: Node) -> Node:
        bounds = self._count()
        if bounds is None:
            return part
        # *? matches as little as possible. Where the whole name must match, that is the same as *.
        self._skip("?")
        # Java reads a++ as a possessive repetition, RE2 refuses it.
        if not self.is_done and (self._pattern[self._at] in _QUANTIFIERS or self._peek("{")):
            raise UnsupportedPattern("a repetition is repeated")
        return Repeat(part, *bounds)

    def _count(self) -> tuple[int, int | None] | None:
        """How often the part before is repeated, least and most; None without a repetition."""
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
        # Without a } this is 0, but then ``text`` is empty and the next check raises.
        self._at = end + 1
        low, comma, high = text.partition(",")
        if not (
            low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit()))
        ):
            raise UnsupportedPattern("a { that is not a count is written \\{")
        if max(len(low), len(high)) > _REPEAT_DIGITS_MAX:
            raise UnsupportedPattern(f"a count has more than {_REPEAT_DIGITS_MAX} digits")
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if max(least, most or 0) > REPEAT_MAX:
            raise UnsupportedPattern(f"a count is larger than {REPEAT_MAX}")
        if most is not None and most < least:
            raise InvalidPattern("a count ends before it begins")
        return least, most

    def _escape(self) -> Node:
        """What a backslash and the next character stand for outside of []."""
        char = self._next("an escape")
        if char.lower() in _CLASSES:
            return Chars(_CLASSES[char.lower()], is_negated=char.isupper())
        if char == "A":
            return Anchor.START
        if char == "z":
            return Anchor.END
        return _one(self._escaped(char))

    def _escaped(self, char: str) -> str:
        """The character that a backslash and ``char`` stand for, outside and inside of []."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        if char.isascii() and char.isalnum():
            raise UnsupportedPattern(f"\\{char} is not served")
        return char

    def _hexadecimal(self) -> str:
        """The character of ``\\x41`` or ``\\x{1F600}``, from behind the x on."""
        found = _HEXADECIMAL.match(self._pattern, self._at)
        if found is None:
            raise InvalidPattern("\\x wants two hexadecimal digits, or some in braces")
        self._at = found.end()
        try:
            return chr(int(found[1] or found[2], 16))
        except (ValueError, OverflowError):
            raise InvalidPattern("\\x names a character beyond 10FFFF") from None

    def _class(self) -> Node:
        """A class, from behind its [ on."""
        is_negated = self._skip("^")
        ranges: list[tuple[str, str]] = []
        # A ] that stands first is a member.
        while not ranges or not self._peek("]"):
            # Java joins and intersects classes so; RE2 takes both as plain characters.
            if self._peek("[") or self._peek("&&"):
                raise UnsupportedPattern("classes within classes are not served")
            low = self._class_char()
            # An escape such as \d stands for ranges of its own and cannot begin a range.
            if isinstance(low, tuple):
                ranges += low
                continue
            high: str | Ranges = low
            # A - that stands last is a member.
            if self._peek("-") and not self._peek("-]"):
                self._at += 1
                high = self._class_char()
            if isinstance(high, tuple) or high < low:
                raise InvalidPattern("a range in [] ends before it begins")
            ranges.append((low, high))
        self._at += 1
        return Chars(tuple(ranges), is_negated=is_negated)

    def _class_char(self) -> str | Ranges:
        """The next member of a class: a character, or the ranges of an escape such as ``\\d``."""
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
