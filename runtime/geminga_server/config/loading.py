"""Loads configs: defaults < TOML file < environment < options, with the source of each value.

``config.declaration`` says what a setting is called in each of these. Values are converted and
checked by pydantic, which is imported only when a value is not already right as it is: a part that
the supervisor starts, with checked options, starts 60 to 100 ms sooner. (pydantic-settings would
cost another 120 ms, and does not keep where a value came from.)
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
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

from geminga_server.config.declaration import Setting, bare_type, list_of_words, settings_of
from geminga_server.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import ValidationError

# The names of the variables that Kubernetes sets for a service called geminga-broker, in every
# container: GEMINGA_BROKER_PORT=tcp://..., GEMINGA_BROKER_SERVICE_HOST and more. They look like
# settings of ours. A variable whose name ends in _PORT is one of them only with such a value.
_SERVICE_LINK = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_SERVICE_LINK_VALUES = ("tcp://", "udp://", "sctp://")

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, slots=True)
class Given:
    """One value, and its source in words."""

    value: object
    source: str


def load_config(
    kind: type[ConfigT],
    part: str,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> ConfigT:
    """The config of ``part`` as a ``kind``.

    ``flags`` are by name (``log.entries_max`` in a group); None means not given. ``environment`` is
    by default that of the process. Raises ``ConfigError``, whose message names every wrong value,
    where it was read, and what would be right.
    """
    # Stage 1: one value for each setting, from the source that has the last word.
    settings = settings_of(kind)
    given: dict[str, Given] = {}
    if file is not None:
        given |= _from_file(file, part, settings)
    given |= _from_environment(os.environ if environment is None else environment, part, settings)
    # Each source overrides those before it.
    for name, value in (flags or {}).items():
        assert name in settings, f"a flag for {name}, which is no setting"
        if value is not None:
            given[name] = Given(value, f"flag {settings[name].option} = {value!r}")
    given = {
        name: replace(one, value=_as_declared(one.value, settings[name]))
        for name, one in given.items()
    }
    # Stage 2: from flat names to the form of the class. The values in dictionaries that are nested
    # as the config classes are.
    values: dict[str, Any] = {}
    for name, one in given.items():
        *groups, field = settings[name].path
        table = values
        for group in groups:
            table = table.setdefault(group, {})
        table[field] = one.value
    # Stage 3: build the config, by one of two ways that lead to the same result. The usual way,
    # without pydantic: parts get options that their supervisor has checked.
    if all(_is_plainly_right(one.value, settings[name]) for name, one in given.items()):
        required = (each for each in settings.values() if each.default is MISSING)
        # pydantic would find these, too; here nothing needs it.
        if missing := [_missing(part, each) for each in required if each.name not in given]:
            raise ConfigError(_describe(part, missing))
        try:
            return _construct(kind, values)
        except ValueError as error:  # settings that are right each, and wrong together
            raise ConfigError(_describe(part, [str(error)])) from error

    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - only when it is needed

    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems = list(_problems(error, part, settings, given))
        raise ConfigError(_describe(part, problems)) from error


# --- where values come from ------------------------------------------------------------------


def _from_file(file: Path, part: str, settings: Mapping[str, Setting]) -> dict[str, Given]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"file {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"file {file} is not TOML: {error}") from error
    # One file has the settings of all parts, each below its name. Other parts' are not looked at.
    stray = [name for name, value in content.items() if not isinstance(value, dict)]
    if stray:
        raise ConfigError(f"file {file}: {stray[0]} stands outside; put it below [{part}]")
    # No section is no error: the file may configure other parts alone.
    section = cast("dict[str, object]", content.get(part, {}))
    given = {
        name: Given(value, f"file {file}, [{part}] {name} = {value!r}")
        for name, value in _flatten(section, "", settings)
    }
    problems = [
        _no_such_setting(one.source, name, settings)
        for name, one in given.items()
        if name not in settings
    ]
    if problems:
        raise ConfigError(_describe(part, problems))
    return given


def _flatten(
    table: Mapping[str, object], prefix: str, settings: Mapping[str, Setting]
) -> Iterator[tuple[str, object]]:
    # Groups within groups have names with several dots, as their classes are nested.
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict) and name not in settings:
            # A table that is no setting is a group, or a mistake that is reported below.
            yield from _flatten(cast("dict[str, object]", value), f"{name}.", settings)
        else:
            yield name, value


def _from_environment(
    environment: Mapping[str, str], part: str, settings: Mapping[str, Setting]
) -> dict[str, Given]:
    given: dict[str, Given] = {}
    known = {setting.variable(part): setting for setting in settings.values()}
    prefix = f"GEMINGA_{part}_".upper().replace("-", "_")
    problems: list[str] = []
    for variable, value in environment.items():
        # Before the prefix is looked at: a Kubernetes variable is never a mistake of the user's.
        if _SERVICE_LINK.search(variable) or (
            variable.endswith("_PORT") and value.startswith(_SERVICE_LINK_VALUES)
        ):
            continue
        setting = known.get(variable)
        if setting is not None:
            # Numbers stay text: pydantic converts them.
            parsed = list_of_words(value) if setting.is_list else value
            given[setting.name] = Given(parsed, f"variable {variable} = {value!r}")
        elif variable.startswith(prefix):
            # Compared without the prefix, which would make any two of them similar.
            names = [each.removeprefix(prefix) for each in known]
            name = variable.removeprefix(prefix)
            problems.append(_no_such_setting(f"variable {variable}", name, names, prefix))
    if problems:
        raise ConfigError(_describe(part, problems))
    return given


def _as_declared(value: object, setting: Setting) -> object:
    """The value, as it was declared if it is one of a choice of words in any case."""
    kind = bare_type(setting.kind)
    if isinstance(value, str) and get_origin(kind) is Literal:
        words = {str(word).casefold(): word for word in get_args(kind)}
        # A word that is none of the choice stays as it is: the refusal quotes it.
        return words.get(value.casefold(), value)
    return value


def _no_such_setting(source: str, name: str, names: Collection[str], prefix: str = "") -> str:
    """The problem of a ``name`` that is none of ``names``, with the one that may be meant."""
    similar = difflib.get_close_matches(name, names, n=1)
    return f"{source}: no such setting" + "".join(f"; {prefix}{meant}?" for meant in similar)


# --- building --------------------------------------------------------------------------------


def _is_plainly_right(value: Any, setting: Setting) -> bool:  # noqa: ANN401 - a value of any kind
    """Whether a value is right without any conversion. If False, pydantic decides."""
    bare = bare_type(setting.kind)
    if bare is float and type(value) is int:
        return False  # pydantic converts it
    if get_origin(bare) is Literal:
        return value in get_args(bare)
    # Not ``isinstance``: True is an int in Python, and no number in a setting.
    if type(value) is not bare and not (bare is Path and issubclass(type(value), Path)):
        return False
    limits = get_args(setting.kind)[1:] if get_origin(setting.kind) is Annotated else ()
    for limit in limits:
        match limit:
            case Ge(ge=bound) if value >= bound:
                continue
            case Gt(gt=bound) if value > bound:
                continue
            case Le(le=bound) if value <= bound:
                continue
            case Lt(lt=bound) if value < bound:
                continue
            case _:  # outside of the limit, or a kind of limit that only pydantic knows
                return False
    return True


def _construct(kind: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    hints = get_type_hints(kind)
    # The innermost groups first: each class checks in its ``__post_init__`` what it has been given.
    for key, value in values.items():
        if isinstance(value, dict):  # a group: no setting is a mapping that is plainly right
            values[key] = _construct(cast("type[Any]", hints[key]), value)
    return kind(**values)


# --- what is wrong ---------------------------------------------------------------------------


def _problems(
    error: ValidationError,
    part: str,
    settings: Mapping[str, Setting],
    given: Mapping[str, Given],
) -> Iterator[str]:
    by_path = {setting.path: setting for setting in settings.values()}
    for one in error.errors(include_url=False):
        where = tuple(str(key) for key in one["loc"])
        # The location may lead into a value, such as the third of a list: its longest beginning
        # that names a setting is the setting.
        ways = (where[:length] for length in range(len(where), 0, -1))
        setting = next((by_path[way] for way in ways if way in by_path), None)
        if setting is not None and one["type"] == "missing":
            yield _missing(part, setting)
            continue
        wish = one["msg"].removeprefix("Value error, ").removeprefix("Input ")
        source = given.get(setting.name) if setting is not None else None
        yield f"{source.source}: {wish}" if source else wish


def _missing(part: str, setting: Setting) -> str:
    return (
        f"{setting.name} is not given: use the flag {setting.option}, the variable "
        f"{setting.variable(part)}, or {setting.name} below [{part}] in the file"
    )


def _describe(part: str, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"a setting of the {part} is wrong: {problems[0]}"
    return f"{len(problems)} settings of the {part} are wrong:\n  " + "\n  ".join(problems)
