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

from geminga_cli.commands.help import HelpPages, SettingsParser, metavar_of
from geminga_cli.gate import pass_gate

# Settings whose option has a shorter name beside the one that follows from theirs.
SHORT_OPTIONS = {
    "data_directory": "--data-dir",
    "hang_limit_s": "--hang-limit",
    "log_json": "--json-logs",
}
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

    @property
    def options(self) -> tuple[str, ...]:
        """The option, behind its short name where it has one."""
        short = SHORT_OPTIONS.get(self.name)
        return (short, self.option) if short else (self.option,)

    def variable(self, part: str) -> str:
        """``GEMINGA_BROKER_LOG__ENTRIES_MAX``."""
        return f"GEMINGA_{part}_{self.name.replace('.', '__')}".upper()


def run_part_command(
    part: str,
    settings_class: type[Any],
    modules: Sequence[str],
    arguments: Sequence[str],
    pages: HelpPages,
) -> int:
    """Run the part whose module is the first of ``modules``; the others it will need soon."""
    options = vars(make_parser(part, settings_class, pages).parse_args(arguments))
    file = options.pop("config")
    module = import_module(modules[0])
    if not pass_gate(os.environ, modules[1:]):
        return 0  # the supervisor died before it ever let us go
    return cast("Part", module).main(file, options)


def make_parser(part: str, settings_class: type[Any], pages: HelpPages) -> SettingsParser:
    """``--config`` and an option for every setting; what is not given stays None."""
    parser = SettingsParser(part, pages)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"a TOML file; what stands below [{part}] there",
    )
    for setting in settings_of(settings_class):
        kind = bare_type(setting.kind)
        how: dict[str, Any] = (
            {"action": argparse.BooleanOptionalAction, "default": None}
            if kind is bool
            else {"type": reader_of(kind), "metavar": metavar_of(setting, kind)}
        )
        action = parser.add_argument(*setting.options, dest=setting.name, **how)
        parser.explain(action, setting)
    return parser


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
