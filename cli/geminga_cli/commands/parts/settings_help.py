"""What ``--help`` says of a command with settings: the ones that people need first, then the rest.

What a setting does stands in its config class (``setting_words``). Which ones are needed first,
and which subject each belongs to, says the command's module: its ``HelpPages``.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, is_dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

from geminga_server.config import Setting, bare_type

# What an option's value is called, by what its setting's name ends with.
METAVARS = {
    "_ms": "MILLISECONDS",
    "_s": "SECONDS",
    "_bytes": "BYTES",
    "_bytes_max": "BYTES",
    "_bytes_per_s": "BYTES",
    "_bytes_per_s_max": "BYTES",
    "_mib": "MIB",
    "port": "PORT",
    "address": "HOST",
    "zookeeper": "HOST:PORT",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """Settings that belong together: a word for them, what they are about, and which they are.

    A pattern is held against a setting's name, and against its path in the config class: all of a
    group is ``listeners.*``, whatever its settings are called outside.
    """

    name: str
    about: str
    patterns: Sequence[str]

    def has(self, setting: Setting) -> bool:
        """Whether the setting belongs to it."""
        names = {setting.name, ".".join(setting.path)}
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class HelpPages:
    """What a command does, the settings that are needed first, and the subjects of all settings.

    Without subjects there is one page, with all settings, those that are needed first first.
    ``command`` is what people type, where that is not the name of the part.
    """

    purpose: str
    first: Sequence[str]
    subjects: Sequence[Subject] = ()
    command: str = ""


class SettingsParser(argparse.ArgumentParser):
    """A parser whose help is made when somebody asks for it, not at each start.

    ``--help`` is the first page; ``--help-all SUBJECT`` the settings of a subject, ``--help-all``
    those of all subjects. ``explain`` names the option of each setting.
    """

    def __init__(self, part: str, pages: HelpPages) -> None:
        super().__init__(
            prog=f"geminga {pages.command or part}",
            usage=f"geminga {pages.command or part} [--config FILE] [OPTION ...]",
            formatter_class=_OneMetavar,
            allow_abbrev=False,
        )
        self._part = part
        self._pages = pages
        self._explained: dict[str, tuple[argparse.Action, Setting]] = {}
        self._words: dict[type[Any], dict[str, str]] = {}
        if pages.subjects:
            self.add_argument(
                "--help-all",
                action=_PrintSubject,
                nargs="?",
                dest=argparse.SUPPRESS,
                metavar="SUBJECT",
                help="show the settings of one subject, or of all, and exit",
            )

    def explain(self, action: argparse.Action, setting: Setting) -> None:
        """``action`` is the option of ``setting``."""
        self._explained[setting.name] = action, setting

    def format_help(self) -> str:
        """The first page: what the command does, what people need first, where the rest is."""
        first, subjects = self._pages.first, self._pages.subjects
        names = first if subjects else [*first, *(n for n in self._explained if n not in first)]
        settings = {id(action) for action, _ in self._explained.values()}
        options = [action for action in self._actions if id(action) not in settings]
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self._pages.purpose)
        self._add_section(formatter, "options", options)
        self._add_section(
            formatter,
            "settings that people need first" if subjects else "settings",
            self._actions_of(names, in_full=not subjects),
        )
        return formatter.format_help() + self._more()

    def format_subjects(self, wanted: str | None) -> str:
        """The settings of the subject ``wanted``, or of all; a wrong one ends the process."""
        chosen = [each for each in self._pages.subjects if wanted in (None, each.name)]
        if not chosen:
            known = ", ".join(each.name for each in self._pages.subjects)
            self.error(f"there is no subject {wanted!r}; there are: {known}")
        formatter = self._get_formatter()
        for subject in chosen:
            names = [name for name, (_, each) in self._explained.items() if subject.has(each)]
            heading = f"{subject.name} - {subject.about}"
            self._add_section(formatter, heading, self._actions_of(names, in_full=True))
        return formatter.format_help()

    def _actions_of(self, names: Iterable[str], *, in_full: bool) -> list[argparse.Action]:
        """The options of these settings, with the help that is read for them now; ``in_full``: and
        what upstream calls them."""
        from geminga_cli.commands.parts.settings_help import (  # noqa: PLC0415 - only for help
            docs_of,
        )

        found: list[argparse.Action] = []
        for name in names:
            action, setting = self._explained[name]
            if setting.owner not in self._words:
                self._words[setting.owner] = docs_of(setting.owner)
            words = self._words[setting.owner].get(setting.field, "")
            action.help = _help_of(setting, self._part, words, in_full=in_full)
            found.append(action)
        return found

    def _add_section(
        self, formatter: argparse.HelpFormatter, title: str, actions: Sequence[argparse.Action]
    ) -> None:
        formatter.start_section(title)
        formatter.add_arguments(actions)
        formatter.end_section()

    def _more(self) -> str:
        """How settings are written, and where those are that the first page leaves out."""
        name = self._pages.first[0]
        _, setting = self._explained[name]
        example = (
            "Each setting can be given in three ways, of which the later wins:\n"
            f"  {name} below [{self._part}] in the file,\n"
            f"  the variable {setting.variable(self._part)},\n"
            f"  the option {setting.option}.\n"
        )
        if not self._pages.subjects:
            return f"\n{example}"
        width = max(len(subject.name) for subject in self._pages.subjects)
        lines = [f"  {subject.name:{width}}  {subject.about}\n" for subject in self._pages.subjects]
        return (
            f"\n{example}\nAll {len(self._explained)} settings, by subject "
            f"(geminga {self._part} --help-all SUBJECT):\n{''.join(lines)}"
        )


class _PrintSubject(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - as the base class has it
        values: object,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        assert isinstance(parser, SettingsParser)
        print(parser.format_subjects(cast("str | None", values)), end="")
        parser.exit()


class _OneMetavar(argparse.HelpFormatter):
    """``--data-dir, --data-directory DIRECTORY``: the value is named once, as Python 3.13 does."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, str(action.metavar))
        return f"{', '.join(action.option_strings)} {value}"


def metavar_of(setting: Setting) -> str:
    """What the value of the setting's option is called in the help."""
    kind = bare_type(setting.kind)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if setting.is_list:
        return "A,B"
    for end, word in METAVARS.items():
        if setting.field.endswith(end):
            return word
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(cast("type[Any]", kind), "TEXT")


def _help_of(setting: Setting, part: str, words: str, *, in_full: bool) -> str:
    """What it does, its default, and how it is called where its option does not show that."""
    names = [f"variable {setting.variable(part)}"]
    if "." in setting.name:
        names.insert(0, f"setting {setting.name}")
    if in_full and setting.upstream is not None:
        names.append(f"in {setting.upstream.of} {setting.upstream.name}")
    told = f"{words} (default: {default_words(setting.default)}; {'; '.join(names)})"
    return told.strip().replace("%", "%%")


def docs_of(kind: type[Any]) -> dict[str, str]:
    """What stands below the fields of a config class and its bases, by field, in one line."""
    words: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if is_dataclass(each):
            words |= _words_in(textwrap.dedent(inspect.getsource(each)))
    return words


def _words_in(source: str) -> dict[str, str]:
    (declaration,) = ast.parse(source).body
    assert isinstance(declaration, ast.ClassDef)
    words: dict[str, str] = {}
    for field, below in pairwise(declaration.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                words[name] = " ".join(text.split())
            case _:
                pass
    return words


def default_words(default: object) -> str:
    """A default as it would be written as an option."""
    if default is MISSING:
        return "none"
    if isinstance(default, tuple):
        return ",".join(map(default_words, default)) or "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, (str, Path)):
        return str(default) or "empty"
    return repr(default)
