"""The ``--help`` of a command with settings: first those that people need first, then the others.

What a setting does is the string below its field in the config class (``docs_of``). The command's
module has ``HelpPages``: which settings are needed first, and which subject each belongs to.
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

# What the value of an option is called, by the end of its setting's name.
METAVARS = {
    "_bytes_per_s": "BYTES",
    "_ms": "MILLISECONDS",
    "_s": "SECONDS",
    "_bytes": "BYTES",
    "_bytes_max": "BYTES",
    "_bytes_per_s_max": "BYTES",
    "_mib": "MIB",
    "port": "PORT",
    "address": "HOST",
    "zookeeper": "HOST:PORT",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """Settings that belong together, on a page of their own (``--help-all NAME``)."""

    name: str
    about: str
    # Which settings these are. A pattern may match a setting's name, or its path in the config
    # class: ``listeners.*`` is all of that group, whatever the names of its settings are.
    patterns: Sequence[str]

    def has(self, setting: Setting) -> bool:
        """Whether the setting belongs to this subject."""
        names = {setting.name, ".".join(setting.path)}
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class HelpPages:
    """What the help of one command says beside its settings."""

    purpose: str
    # The names of the settings on the first page, in this order.
    first: Sequence[str]
    # All settings by subject. Without subjects there is one page; the other settings follow these.
    subjects: Sequence[Subject] = ()
    # The words that people type, where they are not the name of the part.
    command: str = ""


class SettingsParser(argparse.ArgumentParser):
    """A parser that reads the texts of its help only when the help is asked for.

    ``--help`` is the first page; ``--help-all SUBJECT`` shows the settings of a subject,
    ``--help-all`` those of all subjects.
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
        # By a setting's name: its option, and itself.
        self._explained: dict[str, tuple[argparse.Action, Setting]] = {}
        # By a config class: what each of its fields does, once it was read.
        self._docs: dict[type[Any], dict[str, str]] = {}
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
        """Note that ``action`` is the option of ``setting``."""
        self._explained[setting.name] = action, setting

    def format_help(self) -> str:
        """The first page: what the command does, the first settings, where the others are."""
        first, subjects = self._pages.first, self._pages.subjects
        names = first if subjects else [*first, *(n for n in self._explained if n not in first)]
        settings = {id(action) for action, _ in self._explained.values()}
        options = [action for action in self._actions if id(action) not in settings]
        # argparse's own ``format_help`` would list all options, and need the texts of all of them.
        # Texts are filled in by ``_actions_of``, only for the options that this page shows.
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self._pages.purpose)
        self._add_section(formatter, "options", options)
        self._add_section(
            formatter,
            "settings that people need first" if subjects else "settings",
            self._actions_of(names, in_full=not subjects),
        )
        # How any setting is written, shown with the first one.
        name = first[0]
        _, setting = self._explained[name]
        written = (
            "Each setting can be given in three ways; a later one overrides those before it:\n"
            f"  {name} below [{self._part}] in the file,\n"
            f"  the variable {setting.variable(self._part)},\n"
            f"  the option {setting.option}.\n"
        )
        page = f"{formatter.format_help()}\n{written}"
        if not subjects:
            return page
        width = max(len(subject.name) for subject in subjects)
        lines = "".join(f"  {each.name:{width}}  {each.about}\n" for each in subjects)
        return (
            f"{page}\nAll {len(self._explained)} settings, by subject "
            f"(geminga {self._part} --help-all SUBJECT):\n{lines}"
        )

    def format_subjects(self, wanted: str | None) -> str:
        """The settings of the subject ``wanted``, or of all; an unknown one ends the process."""
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
        """The options of these settings, now with their help.

        It says what the setting does, its default, and the names of it that its option does not
        show; ``in_full`` adds upstream's name.
        """
        found: list[argparse.Action] = []
        for name in names:
            action, setting = self._explained[name]
            # Once for each class: its source is parsed for that.
            if setting.owner not in self._docs:
                self._docs[setting.owner] = docs_of(setting.owner)
            does = self._docs[setting.owner].get(setting.field, "")
            names_elsewhere = [f"variable {setting.variable(self._part)}"]
            if "." in setting.name:
                names_elsewhere.insert(0, f"setting {setting.name}")
            if in_full and setting.upstream is not None:
                names_elsewhere.append(f"in {setting.upstream.of} {setting.upstream.name}")
            # The default in the class, not the value that holds: the help reads no file and no
            # environment.
            default = default_words(setting.default)
            text = f"{does} (default: {default}; {'; '.join(names_elsewhere)})"
            action.help = text.strip().replace("%", "%%")  # argparse formats it with %
            found.append(action)
        return found

    def _add_section(
        self, formatter: argparse.HelpFormatter, title: str, actions: Sequence[argparse.Action]
    ) -> None:
        formatter.start_section(title)
        formatter.add_arguments(actions)
        formatter.end_section()


class _PrintSubject(argparse.Action):
    """``--help-all``: prints a subject, or all, and ends the process."""

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
    """Names the value once: ``--data-dir, --data-directory DIRECTORY``, as Python 3.13 does."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, str(action.metavar))
        return f"{', '.join(action.option_strings)} {value}"


def metavar_of(setting: Setting) -> str:
    """The name of the option's value in the help, such as ``SECONDS``."""
    kind = bare_type(setting.kind)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if setting.is_list:
        return "A,B"
    # The first that fits: a longer ending stands before the shorter one that it contains.
    for end, word in METAVARS.items():
        if setting.field.endswith(end):
            return word
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(cast("type[Any]", kind), "TEXT")


def docs_of(kind: type[Any]) -> dict[str, str]:
    """What the fields of a config class and its bases do, by field, in one line each.

    It is the string that stands below the field. Python drops such strings when it compiles, so
    they cost a running part nothing; the help reads them from the source.
    """
    #     class Config:
    #         port: int = 6650           AnnAssign        docs["port"] = "The port."
    #         'The port.'                Expr, below it
    docs: dict[str, str] = {}
    # The bases first: a class may say something else of a field that it inherits.
    for each in reversed(kind.__mro__):
        if not is_dataclass(each):
            continue
        # The class alone, without its module; a nested one is indented.
        (declaration,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(declaration, ast.ClassDef)
        # Only a string directly below a field belongs to it.
        for field, below in pairwise(declaration.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
                case _:
                    pass
    return docs


def default_words(default: object) -> str:
    """A default as it would be written for an option."""
    if default is MISSING:
        return "none"
    if isinstance(default, tuple):
        return ",".join(map(default_words, default)) or "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, (str, Path)):
        return str(default) or "empty"
    return repr(default)
