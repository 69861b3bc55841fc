"""A part's settings: defaults < TOML file < environment < flags; each knows where it came from.

A part declares a frozen dataclass; ``Annotated[int, Ge(0), Le(65535)]`` (``annotated_types``) says
what is allowed. ``port`` of the bookie is ``port`` under ``[bookie]`` in the file, the variable
``GEMINGA_BOOKIE_PORT`` and the flag ``--port``. A field that is itself such a dataclass is a
sub-table in the file and two underscores in a variable: ``GEMINGA_BROKER_LOG__ENTRIES_MAX``.

Values are converted and judged by pydantic, which is imported only when a value is not plainly
right already: a part started by the supervisor, with checked flags, starts 60 to 100 ms sooner.
(pydantic-settings would cost another 120 ms, and forgets where a value came from.)
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le, Lt

from geminga_server.errors import SettingsError

if TYPE_CHECKING:
    from pydantic import ValidationError

# What Kubernetes calls its variables for a service (``_is_of_kubernetes``).
_SERVICE_LINK = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_SERVICE_LINK_VALUES = ("tcp://", "udp://", "sctp://")

SettingsT = TypeVar("SettingsT")
# ("log", "entries_max"): the way from the settings to one value.
Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """One value, and where somebody wrote it, in words."""

    value: object
    source: str


def load_settings(
    kind: type[SettingsT],
    part: str,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> SettingsT:
    """The settings of ``part`` as a ``kind``.

    ``flags`` are by field name (``log.entries_max`` for a nested one); None means not given.
    ``environment`` is the process's where it is not given. Raises ``SettingsError``, whose message
    names every wrong value, where it was read, and what would be right.
    """
    hints = dict(_leaves(kind, ()))
    given: dict[Name, Given] = {}
    if file is not None:
        given |= _from_file(file, part, hints)
    given |= _from_environment(os.environ if environment is None else environment, part, hints)
    given |= _from_flags(flags or {}, hints)
    given = {
        name: replace(one, value=_as_declared(one.value, hints[name]))
        for name, one in given.items()
    }
    if all(_is_plainly_right(one.value, hints[name]) for name, one in given.items()):
        missing = [name for name in _required(kind, ()) if name not in given]
        if missing:
            raise SettingsError(_describe(part, [_missing(part, name) for name in missing]))
        return _build(kind, given, part)
    return _validated(kind, given, part)


# --- where values come from ------------------------------------------------------------------


def _from_file(file: Path, part: str, hints: Mapping[Name, object]) -> dict[Name, Given]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"file {file} is not TOML: {error}") from error
    stray = [name for name, value in content.items() if not isinstance(value, dict)]
    if stray:
        raise SettingsError(f"file {file}: {stray[0]} stands outside; put it below [{part}]")
    section = cast("dict[str, object]", content.get(part, {}))
    given = {
        name: Given(value, f"file {file}, [{part}] {'.'.join(name)} = {value!r}")
        for name, value in _flatten(section, (), hints)
    }
    _refuse_unknown(given, hints, part)
    return given


def _flatten(
    table: Mapping[str, object], above: Name, hints: Mapping[Name, object]
) -> Iterator[tuple[Name, object]]:
    for key, value in table.items():
        name = (*above, key)
        if isinstance(value, dict) and name not in hints:
            yield from _flatten(cast("dict[str, object]", value), name, hints)
        else:
            yield name, value


def _from_environment(
    environment: Mapping[str, str], part: str, hints: Mapping[Name, object]
) -> dict[Name, Given]:
    given: dict[Name, Given] = {}
    prefix = _variable(part, ())
    known = {_variable(part, name): name for name in hints}
    problems: list[str] = []
    for variable, value in environment.items():
        if _is_of_kubernetes(variable, value):
            continue
        name = known.get(variable)
        if name is not None:
            parsed = _split(value, hints[name])
            given[name] = Given(parsed, f"variable {variable} = {value!r}")
        elif variable.startswith(prefix):
            # Without what they have in common: it would make any two of them similar.
            settings = [each.removeprefix(prefix) for each in known]
            meant = _closest(variable.removeprefix(prefix), settings)
            problems.append(_no_such_setting(f"variable {variable}", meant and prefix + meant))
    if problems:
        raise SettingsError(_describe(part, problems))
    return given


def _from_flags(flags: Mapping[str, object], hints: Mapping[Name, object]) -> dict[Name, Given]:
    given: dict[Name, Given] = {}
    for key, value in flags.items():
        name = tuple(key.split("."))
        assert name in hints, f"a flag for {key}, which is no setting"
        if value is not None:
            flag = "-".join(name).replace("_", "-")
            given[name] = Given(value, f"flag --{flag} = {value!r}")
    return given


def _variable(part: str, name: Name) -> str:
    return f"GEMINGA_{part}_{'__'.join(name)}".upper().replace("-", "_")


def _is_of_kubernetes(variable: str, value: str) -> bool:
    """Whether Kubernetes set the variable: for a service called geminga-broker it sets
    GEMINGA_BROKER_PORT=tcp://..., GEMINGA_BROKER_SERVICE_HOST and more in every container."""
    if _SERVICE_LINK.search(variable):
        return True
    return variable.endswith("_PORT") and value.startswith(_SERVICE_LINK_VALUES)


def _as_declared(value: object, hint: object) -> object:
    """One of a choice of words is written as it was declared, in whatever case it was given."""
    kind = _bare(hint)
    if isinstance(value, str) and get_origin(kind) is Literal:
        words = {str(word).casefold(): word for word in get_args(kind)}
        return words.get(value.casefold(), value)
    return value


def _split(value: str, hint: object) -> object:
    """``a,b`` is two values where a setting is a list of them."""
    if get_origin(_bare(hint)) in (tuple, list):
        return tuple(one.strip() for one in value.split(",") if one.strip())
    return value


def _refuse_unknown(given: Mapping[Name, Given], hints: Mapping[Name, object], part: str) -> None:
    names = [".".join(name) for name in hints]
    problems = []
    for name, one in given.items():
        if name not in hints:
            problems.append(_no_such_setting(one.source, _closest(".".join(name), names)))
    if problems:
        raise SettingsError(_describe(part, problems))


def _no_such_setting(source: str, meant: str) -> str:
    return f"{source}: no such setting" + (f"; {meant}?" if meant else "")


def _closest(name: str, names: Sequence[str]) -> str:
    return next(iter(difflib.get_close_matches(name, names, n=1)), "")


# --- what a settings class declares ----------------------------------------------------------


def _leaves(kind: type[Any], above: Name) -> Iterator[tuple[Name, object]]:
    """Every setting's name and type, those of nested classes included."""
    assert is_dataclass(kind)
    hints = get_type_hints(kind, include_extras=True)
    for one in fields(kind):
        hint = hints[one.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _leaves(hint, (*above, one.name))
        else:
            yield (*above, one.name), hint


def _required(kind: type[Any], above: Name) -> Iterator[Name]:
    hints = get_type_hints(kind)
    for one in fields(kind):
        if one.default is not MISSING or one.default_factory is not MISSING:
            continue
        hint = hints[one.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _required(hint, (*above, one.name))
        else:
            yield (*above, one.name)


def _bare(hint: object) -> object:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_plainly_right(value: object, hint: object) -> bool:
    """Right without converting anything. False only means that pydantic is to look at it."""
    bare = _bare(hint)
    if bare is float and type(value) is int:
        return False  # to be converted
    if get_origin(bare) is Literal:
        return value in get_args(bare)
    if type(value) is not bare and not (bare is Path and isinstance(value, Path)):
        return False
    constraints = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return all(_holds(value, constraint) for constraint in constraints)


def _holds(value: Any, constraint: object) -> bool:  # noqa: ANN401 - anything with an order
    match constraint:
        case Ge(ge=limit):
            return bool(value >= limit)
        case Gt(gt=limit):
            return bool(value > limit)
        case Le(le=limit):
            return bool(value <= limit)
        case Lt(lt=limit):
            return bool(value < limit)
        case _:
            return False


# --- building --------------------------------------------------------------------------------


def _nest(given: Mapping[Name, Given]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, one in given.items():
        table = nested
        for key in name[:-1]:
            table = table.setdefault(key, {})
        table[name[-1]] = one.value
    return nested


def _build(kind: type[SettingsT], given: Mapping[Name, Given], part: str) -> SettingsT:
    try:
        return _construct(kind, _nest(given))
    except ValueError as error:  # settings that are right each, and wrong together
        raise SettingsError(_describe(part, [str(error)])) from error


def _construct(kind: type[SettingsT], values: dict[str, Any]) -> SettingsT:
    hints = get_type_hints(kind)
    for key, value in values.items():
        if is_dataclass(hints[key]) and isinstance(value, dict):
            values[key] = _construct(cast("type[Any]", hints[key]), value)
    return kind(**values)


def _validated(kind: type[SettingsT], given: Mapping[Name, Given], part: str) -> SettingsT:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - only when it is needed

    try:
        return TypeAdapter(kind).validate_python(_nest(given))
    except ValidationError as error:
        raise SettingsError(_describe(part, list(_problems(error, given, part)))) from error


def _problems(error: ValidationError, given: Mapping[Name, Given], part: str) -> Iterator[str]:
    for one in error.errors(include_url=False):
        where = tuple(str(key) for key in one["loc"])
        source = next((g.source for name, g in given.items() if where[: len(name)] == name), None)
        if one["type"] == "missing":
            yield _missing(part, where)
            continue
        wish = one["msg"].removeprefix("Value error, ").removeprefix("Input ")
        yield f"{source}: {wish}" if source else wish


def _missing(part: str, name: Name) -> str:
    flag = "-".join(name).replace("_", "-")
    dotted = ".".join(name)
    return (
        f"{dotted} is not given: use the flag --{flag}, the variable {_variable(part, name)}, "
        f"or {dotted} below [{part}] in the file"
    )


def _describe(part: str, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"a setting of the {part} is wrong: {problems[0]}"
    return f"{len(problems)} settings of the {part} are wrong:\n  " + "\n  ".join(problems)
