"""Schemas of a topic, and what clients and operators were told of them: a history that a registry
of schemas has to explain.

Two families of definitions: each may follow all of its own family, none of the other.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf

from geminga import SchemaInfo
from geminga_protocol.pulsar.enums import SchemaType
from geminga_simulation.histories.linearizability import Model, Operation, check_linearizable

FAMILIES = ("int", "string")
DEFINITIONS_A_FAMILY = 4
# What is told of a schema that a client brought: the number is the broker's business.
ACCEPTED, REFUSED = "accepted", "refused"

# The definitions and tombstones (None) that were stored one after the other.
Versions = tuple[str | None, ...]


def names() -> list[str]:
    """The names of all definitions: their family, and a number."""
    return [f"{family}/{number}" for family in FAMILIES for number in range(DEFINITIONS_A_FAMILY)]


def definition_of(name: str) -> SchemaInfo:
    """The schema of a name. Of one family each has one field, which may be missing, of its own."""
    family, _, number = name.partition("/")
    own = {"name": f"field_{number}", "type": ["null", "string"], "default": None}
    record = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "amount", "type": family}, own],
    }
    return SchemaInfo(SchemaType.JSON, definition=json.dumps(record).encode())


NAMES_BY_DEFINITION = {definition_of(name).definition: name for name in names()}
NAMES_BY_DIGEST = {sha256(each).digest(): name for each, name in NAMES_BY_DEFINITION.items()}


def model_of(versions: Versions) -> Model[int]:
    """What the registry of a topic does whose record names these versions in the end: how many of
    them there are is its state. Nothing else may have been stored, in no other order, which leaves
    little to search for."""

    def step(count: int, what: Hashable) -> int | None:
        assert isinstance(what, tuple)
        kind, asked, told = what
        begin = max((at + 1 for at in range(count) if versions[at] is None), default=0)
        live = versions[begin:count]
        if kind == "get":
            if asked is None:
                found = live[-1] if live else None
            else:
                found = versions[asked] if begin <= asked < count else None
            return count if found == told else None
        stored = count + 1 if count < len(versions) and told in (None, ACCEPTED, count) else None
        if kind == "delete":
            return stored if stored and versions[count] is None else None
        if asked in live:
            return count if told in (None, ACCEPTED, begin + live.index(asked)) else None
        if live and _family(live[-1]) != _family(asked):
            return count if told == REFUSED else None
        return stored if stored and versions[count] == asked else None

    return Model(0, step)


def _family(name: Hashable) -> str:
    assert isinstance(name, str)
    return name.partition("/")[0]


@dataclass(slots=True)
class History:
    """What was asked of one topic's schemas."""

    operations: list[Operation] = field(default_factory=list[Operation])
    # A client that loses its broker brings its schema to the next one, also where the first may
    # have stored it: if it is deleted between, it is stored twice.
    brought_again: list[Operation] = field(default_factory=list[Operation])

    def add(self, client: str, called_s: float, returned_s: float, what: Hashable) -> None:
        """Note an operation; ``returned_s`` is infinite where it is not known what came of it."""
        self.operations.append(Operation(client, called_s, returned_s, what))

    def check(self, versions: Versions) -> None:
        """Raise ``InvariantViolated`` where no registry can have told this that names these
        versions in the end."""
        check_linearizable([*self.operations, *self._repeats()], model_of(versions))

    def _repeats(self) -> list[Operation]:
        """What was brought before something was deleted, and may have been stored again then."""
        deletions = [each for each in self.operations if _kind(each) == "delete"]
        last_s = max((each.returned_s for each in deletions), default=-inf)
        return [each for each in self.brought_again if each.called_s < last_s]


def _kind(operation: Operation) -> str:
    assert isinstance(operation.what, tuple)
    return str(operation.what[0])
