"""What the commands that run one part each share: options made of the part's settings.

Every setting is an option, under the name that ``geminga_server.config`` uses in its messages.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from geminga_cli.commands.parts.settings_help import HelpPages, SettingsParser, metavar_of
from geminga_cli.gate import pass_gate
from geminga_server.config import Setting, bare_type, list_of_words, settings_of

# Settings whose option has a shorter name beside the one that follows from the setting's name.
SHORT_OPTIONS = {
    "data_directory": "--data-dir",
    "hang_limit_s": "--hang-limit",
    "log_json": "--json-logs",
    "num_bookies": "--bookies",
    "num_brokers": "--brokers",
    "num_functions_workers": "--functions-workers",
    "num_proxies": "--proxies",
}
# The types that argparse reads, so that it reports mistakes in them. Other values stay text here:
# the settings read them, with pydantic, which is loaded later.
PLAIN_TYPES: tuple[type, ...] = (int, float, Path)


def run_part_command(
    part: str,
    config_class: type[Any],
    modules: Sequence[str],
    arguments: Sequence[str],
    pages: HelpPages,
) -> int:
    """Run the part in the first of ``modules``; the part will soon import the others.

    Under a supervisor these are imported while the part waits at its gate.
    """
    # Stage 1: argparse, with nothing of the part loaded but its settings: a wrong option is
    # reported at once.
    options = vars(make_parser(part, config_class, pages).parse_args(arguments))
    file = options.pop("config")
    # The options were right: from here on it may take long.
    main: Callable[[Path | None, Mapping[str, object]], int] = import_module(modules[0]).main
    # Stage 2: the supervisor starts all parts at once. Here a part waits, with its imports done,
    # until what it needs is ready.
    if not pass_gate(os.environ, modules[1:]):
        return 0  # the supervisor died before it released us
    return main(file, options)


def make_parser(part: str, config_class: type[Any], pages: HelpPages) -> SettingsParser:
    """``--config`` and an option for every setting; an option that is not given stays None."""
    parser = SettingsParser(part, pages)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"a TOML file, of which the section [{part}] is read",
    )
    for setting in settings_of(config_class).values():
        how: dict[str, Any] = (
            # None and not False: what is not given must not overrule the file and the environment.
            {"action": argparse.BooleanOptionalAction, "default": None}
            if bare_type(setting.kind) is bool
            else {"type": reader_of(setting), "metavar": metavar_of(setting)}
        )
        short = SHORT_OPTIONS.get(setting.name)
        names = (short, setting.option) if short else (setting.option,)
        # ``dest`` is the setting's whole name, dots included: ``load_config`` takes the values by
        # it.
        action = parser.add_argument(*names, dest=setting.name, **how)
        parser.explain(action, setting)
    return parser


def reader_of(setting: Setting) -> Callable[[str], object]:
    """The function that makes a value of an option's text; a list is written ``a,b``."""
    kind = bare_type(setting.kind)
    if isinstance(kind, type) and kind in PLAIN_TYPES:
        return kind
    return list_of_words if setting.is_list else str
