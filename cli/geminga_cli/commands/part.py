"""What the commands that run one part each share: options made from the part's settings.

Every setting is an option, under the name that ``geminga_server.settings`` uses in its messages.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol, cast, get_args, get_origin, get_type_hints

from geminga_cli.commands.setting_words import default_words, words_of
from geminga_cli.gate import pass_gate

# What an option's words are turned into here; the settings turn all others, with pydantic.
PLAIN_TYPES: tuple[type, ...] = (int, float, Path)


class Part(Protocol):
    """A part's module ``part``: how a process of it is run."""

    def main(self, file: Path | None, flags: Mapping[str, object]) -> int:
        """Run until told to stop; returns the exit code."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name (``log.entries_max`` for a nested one), its type, its default.

    ``owner`` is the class that declares it, ``field`` its name there.
    """

    name: str
    kind: object
    default: object
    owner: type[Any]

    @property
    def field(self) -> str:
        """``entries_max``."""
        return self.name.rpartition(".")[2]

    @property
    def option(self) -> str:
        """``--log-entries-max``."""
        return "--" + self.name.replace(".", "-").replace("_", "-")

    def variable(self, part: str) -> str:
        """``GEMINGA_BROKER_LOG__ENTRIES_MAX``."""
        return f"GEMINGA_{part}_{self.name.replace('.', '__')}".upper()


def run_part_command(
    part: str, settings_class: type[Any], modules: Sequence[str], arguments: Sequence[str]
) -> int:
    """Run the part whose module is the first of ``modules``; the others it will need soon."""
    options = vars(make_parser(part, list(settings_of(settings_class))).parse_args(arguments))
    file = options.pop("config")
    module = import_module(modules[0])
    if not pass_gate(os.environ, modules[1:]):
        return 0  # the supervisor died before it ever let us go
    return cast("Part", module).main(file, options)


def make_parser(part: str, settings: Sequence[Setting]) -> argparse.ArgumentParser:
    """``--config`` and an option for every setting; what is not given stays None."""
    parser = _PartParser(
        prog=f"geminga {part}",
        usage=f"geminga {part} [--config FILE] [OPTION ...]",
        description=f"Run one {part} process. Settings: defaults < --config < variables < options.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"a TOML file; what stands below [{part}] there",
    )
    for setting in settings:
        kind = bare_type(setting.kind)
        if kind is bool:
            action = parser.add_argument(
                setting.option,
                dest=setting.name,
                action=argparse.BooleanOptionalAction,
                default=None,
            )
        else:
            action = parser.add_argument(
                setting.option,
                dest=setting.name,
                type=reader_of(kind),
                metavar=setting.field.upper(),
            )
        parser.explained.append((action, setting, part))
    return parser


class _PartParser(argparse.ArgumentParser):
    """Looks up what is said of each setting when somebody asks for help, not at each start."""

    def __init__(self, **what: Any) -> None:  # noqa: ANN401 - as the base class
        super().__init__(**what)
        self.explained: list[tuple[argparse.Action, Setting, str]] = []

    def format_help(self) -> str:
        """The help, with a line for every setting."""
        words: dict[type[Any], dict[str, str]] = {}
        for action, setting, part in self.explained:
            if setting.owner not in words:
                words[setting.owner] = words_of(setting.owner)
            action.help = _help_of(setting, part, words[setting.owner].get(setting.field, ""))
        return super().format_help()


def _help_of(setting: Setting, part: str, words: str) -> str:
    if is_list(bare_type(setting.kind)):
        words += " Several are written a,b."
    default = default_words(setting.default)
    told = f"{words} (default: {default}; variable {setting.variable(part)})"
    return told.strip().replace("%", "%%")


def settings_of(kind: type[Any], above: str = "") -> Iterator[Setting]:
    """Every setting of a settings class, those of nested classes included."""
    hints = get_type_hints(kind, include_extras=True)
    for one in fields(kind):
        hint = hints[one.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from settings_of(hint, f"{above}{one.name}.")
        else:
            default = None if one.default is MISSING else one.default
            yield Setting(above + one.name, hint, default, kind)


def bare_type(hint: object) -> object:
    """``int`` for ``Annotated[int, Ge(0)]``."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def reader_of(kind: object) -> Callable[[str], object]:
    """What makes a value of an option's words; a list is written ``a,b``."""
    if isinstance(kind, type) and kind in PLAIN_TYPES:
        return kind
    return list_of_words if is_list(kind) else str


def is_list(kind: object) -> bool:
    """Whether a setting has several values."""
    return get_origin(kind) in (tuple, list)


def list_of_words(words: str) -> tuple[str, ...]:
    """``a,b`` as two words."""
    return tuple(word.strip() for word in words.split(",") if word.strip())
