"""What a config class declares, and the names of its settings in files, variables and options.

A config class is a frozen dataclass. Each field is a setting: its type says what is allowed
(``Annotated[int, Ge(0), Le(65535)]``, of ``annotated_types``) and what it is called ``Upstream``,
the string below it is its help. Nothing else declares a setting: file, variable, option and help
all follow from the field.

A field whose type is a config class itself is a group: ``entries_max`` of the broker's group
``log`` is ``entries_max`` below ``[broker.log]`` in the file, ``GEMINGA_BROKER_LOG__ENTRIES_MAX``
and ``--log-entries-max``. A group that is ``INLINE`` gives its settings no prefix: it is a group
because its subject is a package of the source, which users need not know. A field that is
``INTERNAL`` is no setting: a limit that tests and simulations make small, and operators have no
reason to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class Mark(Enum):
    """Marks in ``Annotated`` beside the type of a field."""

    INLINE = "inline"
    INTERNAL = "internal"


INLINE = Mark.INLINE
INTERNAL = Mark.INTERNAL


@dataclass(frozen=True, slots=True)
class Upstream:
    """The name of a setting in Pulsar or BookKeeper, given beside the type of its field."""

    name: str
    # How many of our units one of theirs is: 60 where they count minutes and we seconds.
    unit: float = 1
    of: str = "Pulsar"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a config class or of its groups."""

    # ``log.entries_max`` in a group.
    name: str
    # The attributes that lead from the config to the value, through all groups.
    path: tuple[str, ...]
    # Its type, with its limits.
    kind: object
    # ``MISSING`` where it must be given.
    default: object
    # The class that declares it.
    owner: type[Any]
    upstream: Upstream | None = None

    @property
    def field(self) -> str:
        """``entries_max``."""
        return self.path[-1]

    @property
    def option(self) -> str:
        """``--log-entries-max``."""
        return "--" + self.name.replace(".", "-").replace("_", "-")

    def variable(self, part: str) -> str:
        """``GEMINGA_BROKER_LOG__ENTRIES_MAX``."""
        # Two underscores for a dot: a single one is part of many names.
        return f"GEMINGA_{part}_{self.name.replace('.', '__')}".upper().replace("-", "_")

    @property
    def is_list(self) -> bool:
        """Whether it has several values, which variables and options separate by commas."""
        return get_origin(bare_type(self.kind)) in (tuple, list)

    def value_in(self, config: object) -> object:
        """The value of the setting in ``config``."""
        value = config
        # Through the groups: the last step is the setting itself.
        for step in self.path:
            value = getattr(value, step)
        return value


def settings_of(kind: type[Any]) -> dict[str, Setting]:
    """Every setting of a config class and of its groups, by name, in the order of declaration."""
    found: dict[str, Setting] = {}
    for setting in _declared(kind, "", ()):
        # Two groups that are ``INLINE`` may bring the same name; then neither could be set.
        assert setting.name not in found, f"{kind.__name__} has two settings {setting.name}"
        found[setting.name] = setting
    return found


def _declared(kind: type[Any], prefix: str, above: tuple[str, ...]) -> Iterator[Setting]:
    # Resolved here, because annotations are text (``from __future__ import annotations``); with
    # extras, because limits and names of upstream are in ``Annotated``.
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint = hints[each.name]
        bare, path = bare_type(hint), (*above, each.name)
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        # No setting: it gets no name in a file, a variable or an option.
        if INTERNAL in marks:
            continue
        if isinstance(bare, type) and is_dataclass(bare):
            yield from _declared(bare, prefix if INLINE in marks else f"{prefix}{each.name}.", path)
        else:
            default = each.default
            # The value itself, because ``--help`` and documents show it.
            if default is MISSING and each.default_factory is not MISSING:
                default = each.default_factory()
            # At most one: a setting of ours with two names upstream is two settings.
            theirs = next((mark for mark in marks if isinstance(mark, Upstream)), None)
            yield Setting(prefix + each.name, path, hint, default, kind, theirs)


def bare_type(hint: object) -> object:
    """``int`` for ``Annotated[int, Ge(0)]``."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def list_of_words(words: str) -> tuple[str, ...]:
    """The values of a list that is given as text: ``a,b`` is two."""
    return tuple(word.strip() for word in words.split(",") if word.strip())
