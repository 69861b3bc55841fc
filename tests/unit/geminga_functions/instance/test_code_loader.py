"""Proves how the user's code is found, and that functions in one process share no modules."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga_functions.api import IdentitySerDe
from geminga_functions.errors import FunctionNotLoaded
from geminga_functions.instance.code_loader import CallKind, Loader, load_function

CODE = """
class Greeter:
    def process(self, input, context):
        return f"hello {input}"

class Refuses:
    def __init__(self):
        raise KeyError("no")

def plain(input):
    return input

async def slowly(input, context):
    return input

async def several(input):
    yield input

def process(input):
    return "module " + input

NUMBER = 5
"""


def written(directory: Path, code: str) -> Loader:
    (directory / "the_code.py").write_text(code, encoding="utf-8")
    return Loader([directory], is_alone=False)


@pytest.mark.parametrize(
    ("name", "kind", "takes_context"),
    [
        ("the_code.Greeter", CallKind.PLAIN, True),
        ("the_code.plain", CallKind.PLAIN, False),
        ("the_code", CallKind.PLAIN, False),
        ("the_code.slowly", CallKind.ASYNC, True),
        ("the_code.several", CallKind.ASYNC_GENERATOR, False),
    ],
)
def test_classes_functions_and_modules_are_functions(
    tmp_path: Path, name: str, kind: CallKind, *, takes_context: bool
) -> None:
    function = load_function(written(tmp_path, CODE), name)
    assert (function.kind, function.takes_context) == (kind, takes_context)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("the_code.Missing", "has no 'Missing'"),
        ("the_code.NUMBER", "is no function"),
        ("the_code.Refuses", "cannot be instantiated"),
        ("not_there", "cannot be imported"),
    ],
)
def test_a_name_of_no_function_is_refused_with_the_reason(
    tmp_path: Path, name: str, says: str
) -> None:
    with pytest.raises(FunctionNotLoaded, match=says):
        load_function(written(tmp_path, CODE), name)


def test_a_module_that_exits_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    with pytest.raises(FunctionNotLoaded) as caught:
        load_function(written(tmp_path, "import sys\nsys.exit(3)\n"), "the_code")
    assert isinstance(caught.value.__cause__, SystemExit)


def test_modules_of_the_same_name_are_apart_in_one_process(tmp_path: Path) -> None:
    loaders = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "beside.py").write_text(f"NUMBER = {number}\n", encoding="utf-8")
        loaders.append(
            written(folder, "import beside\n\ndef process(input):\n    return beside.NUMBER\n")
        )
    path = list(sys.path)
    functions = [load_function(loader, "the_code") for loader in loaders]
    assert [function.call("") for function in functions] == [1, 2]
    # Asked again, a loader has the modules that it imported.
    assert loaders[0].find("the_code.process") is functions[0].call
    assert loaders[1].find("beside.NUMBER") == 2
    assert sys.path == path
    assert not {"the_code", "beside"} & set(sys.modules)


def test_serdes_have_the_names_that_upstream_gives_them(tmp_path: Path) -> None:
    assert Loader([tmp_path], is_alone=False).find("serde.IdentitySerDe") is IdentitySerDe


@pytest.mark.parametrize(
    ("payload", "value"),
    [(b"12", 12), (b"1.5", 1.5), (b"1+2j", 1 + 2j), (b"word", "word"), (b"\xff", b"\xff")],
)
def test_the_identity_serde_reads_numbers_text_and_bytes(payload: bytes, value: object) -> None:
    serde = IdentitySerDe()
    assert serde.deserialize(payload) == value
    with pytest.raises(TypeError):
        serde.serialize(["a list"])


NUMBERS = st.integers() | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)


@given(st.text() | NUMBERS.map(str) | NUMBERS.map(lambda number: f" {number}".upper() + "\n"))
def test_the_identity_serde_takes_no_number_for_a_word(text: str) -> None:
    def read() -> object:
        for number in (int, float, complex):
            with suppress(ValueError):
                return number(text)
        return text

    assert repr(IdentitySerDe().deserialize(text.encode())) == repr(read())
