"""Proves what kinds of lines there are, and that a file's lines become events the schema takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_geminga.demo.events import SCHEMA, SourceFile, kind_of, lines_of, source_files


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("", "blank"),
        ("    # why", "comment"),
        ("@cache", "decorator"),
        ("from os import path", "import"),
        ("    async def read(self) -> None:", "def"),
        ("class A:", "class"),
        ("    return x == y", "leaving"),
        ("elif x:", "condition"),
        ("for x in y:", "loop"),
        ("with open(x) as y:", "guard"),
        ("x: int = 1", "assignment"),
        ("self.a[b] += 1", "assignment"),
        ("x == 1", "expression"),
        ("print(x)", "expression"),
        ('"""One line."""', "text"),
    ],
)
def test_a_line_has_a_kind(line: str, kind: str) -> None:
    assert kind_of(line, is_quoted=False) == (kind, False)


def test_a_text_of_several_lines_ends_at_its_quotes() -> None:
    assert kind_of('    """It begins', is_quoted=False) == ("text", True)
    assert kind_of("def is_no_def():", is_quoted=True) == ("text", True)
    assert kind_of('and ends."""', is_quoted=True) == ("text", False)
    assert kind_of('x = """It begins', is_quoted=False) == ("assignment", True)


def test_lines_of_a_file_are_events(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("def f():\n\treturn 1\n\n# end")
    events = list(lines_of(SourceFile(path, "package/code.py", is_standard=False)))
    assert [SCHEMA.decode(SCHEMA.encode(event)) for event in events] == events
    assert events[1] == {
        "package": "package",
        "is_standard": False,
        "file": "package/code.py",
        "line": 2,
        "length": 12,
        "indent": 4,
        "kind": "leaving",
        "word": "return",
    }
    assert [event["word"] for event in events] == ["def", "return", None, None]


def test_what_is_no_text_has_no_events(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_bytes(b"\xff\xfe")
    assert list(lines_of(SourceFile(path, "code.py", is_standard=True))) == []
    path.unlink()
    assert list(lines_of(SourceFile(path, "code.py", is_standard=True))) == []


def test_this_machine_has_source_files_in_the_same_order_each_time() -> None:
    files = source_files()
    assert files == source_files()
    assert {file.package for file in files} >= {"asyncio", "pyspark", "dataclasses"}
    assert len({file.name.partition("/")[0] for file in files[:200]}) > 10
