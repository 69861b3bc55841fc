"""Which schema may follow others by a strategy, and whether it is one of them already. Pure.

Facts: ``SchemaRegistryServiceImpl`` and the compatibility checks of Apache Pulsar 4.0.6, as
configured by default. Among them: a schema that equals one of the versions is that version by any
strategy, documentation and aliases aside; PROTOBUF definitions are not compared; of PROTOBUF_NATIVE
only the name of the root message is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geminga_broker.policies.schemas import SchemaStrategy
from geminga_broker.schemas.errors import IncompatibleSchema, InvalidSchema
from geminga_broker.schemas.rules.avro import invalid_default, parse_avro, same_schema
from geminga_broker.schemas.rules.definitions import (
    AVRO_DEFINED,
    Schema,
    json_schema_id,
    key_and_value,
    root_message,
)
from geminga_broker.schemas.rules.resolution import reading_problem
from geminga_protocol.pulsar.enums import SchemaType


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a topic's schema."""

    # Numbers grow; tombstones leave gaps.
    number: int
    schema: Schema


# With these strategies a consumer is compared with the newest version only, by BACKWARD: it only
# reads.
_CONSUMERS_READ_NEWEST = frozenset(
    {
        SchemaStrategy.BACKWARD,
        SchemaStrategy.FORWARD,
        SchemaStrategy.FORWARD_TRANSITIVE,
        SchemaStrategy.FULL,
    }
)


def version_of(versions: Sequence[Version], schema: Schema) -> int | None:
    """The number of the version that equals ``schema``. Raises ``InvalidSchema`` for an Avro
    definition that upstream accepts only as the first one of a topic."""
    if not versions:
        return None
    # Definitions that are not Avro schemas are compared byte by byte. In the order of the versions,
    # so that the oldest of equal ones is found.
    if schema.type not in AVRO_DEFINED:
        same = (each.number for each in versions if _is_same_text(each.schema, schema))
        return next(same, None)
    own = parse_avro(schema.definition)
    if problem := invalid_default(own):
        raise InvalidSchema(
            f"Invalid schema definition data for {schema.type.name} schema: {problem}"
        )
    # The same bytes are the usual case, and spare the parsing of the other version.
    for each in versions:
        # An AVRO and a JSON schema may have one definition, and are different schemas.
        if each.schema.type is not schema.type:
            continue
        if each.schema.definition == schema.definition:
            return each.number
        try:
            other = parse_avro(each.schema.definition)
        except InvalidSchema as error:
            # A JSON schema in Jackson's form: as in upstream, no Avro schema can follow it.
            raise InvalidSchema(f"version {each.number} cannot be compared: {error}") from None
        if same_schema(own, other):
            return each.number
    return None


def _is_same_text(one: Schema, other: Schema) -> bool:
    return one.type is other.type and one.definition == other.definition


def check_following(versions: Sequence[Version], schema: Schema, strategy: SchemaStrategy) -> None:
    """Raise ``IncompatibleSchema`` unless ``schema`` may follow ``versions``, the oldest first;
    ``InvalidSchema`` if comparing them would take too long."""
    if strategy is SchemaStrategy.ALWAYS_COMPATIBLE or not versions:
        return
    #     versions    0   1   2   3 ◀── schema     transitive: compared with 3, 2, 1, 0; else with 3
    compared = list(versions) if strategy.is_transitive else [versions[-1]]
    newest = versions[-1].schema
    if not strategy.is_transitive and _is_same_text(newest, schema):
        return
    # Types before definitions: those of another type could not be parsed. For a transitive strategy
    # one version of another type is enough to refuse all that come.
    for each in compared:
        if each.schema.type is not schema.type:
            raise IncompatibleSchema(
                f"Incompatible schema: exists schema type {each.schema.type.name}, "
                f"new schema type {schema.type.name}"
            )
    try:
        for each in reversed(compared):
            _check_pair(each, schema, strategy)
    except RecursionError:
        raise InvalidSchema("the schemas are nested too deep to be compared") from None


def check_consumer(versions: Sequence[Version], schema: Schema, strategy: SchemaStrategy) -> None:
    """Raise ``IncompatibleSchema`` unless a consumer with ``schema`` may read what is written with
    ``versions``."""
    if strategy is SchemaStrategy.ALWAYS_COMPATIBLE:
        return
    if not versions:
        # The topic is in use: in an unused topic, the consumer's schema becomes the first version.
        raise IncompatibleSchema(
            "Failed to add schema to an active topic with empty(BYTES) schema: new schema type "
            f"{schema.type.name}"
        )
    if strategy in _CONSUMERS_READ_NEWEST:
        check_following(versions, schema, SchemaStrategy.BACKWARD)
        return
    # As in upstream: with all versions, even if the strategy is not transitive. The rest:
    # BACKWARD_TRANSITIVE, FULL_TRANSITIVE and ALWAYS_INCOMPATIBLE.
    for each in reversed(versions):
        check_following([each], schema, strategy)


def _check_pair(present: Version, schema: Schema, strategy: SchemaStrategy) -> None:
    """Raise ``IncompatibleSchema`` unless ``schema`` may follow the one version ``present``."""
    match schema.type:
        case SchemaType.KEY_VALUE:
            # Each half for itself. A half may be of any type, a pair too: ``check_definition`` has
            # bounded how deep.
            halves = zip(
                ("key", "value"), key_and_value(present.schema), key_and_value(schema), strict=True
            )
            for name, old_half, new_half in halves:
                if old_half.type is not new_half.type:
                    _refuse(
                        strategy,
                        f"the {name} of version {present.number} is {old_half.type.name}, "
                        f"the new one's {new_half.type.name}",
                    )
                try:
                    _check_pair(Version(present.number, old_half), new_half, strategy)
                except IncompatibleSchema as error:
                    raise IncompatibleSchema(f"{error} (in the {name})") from None
        case SchemaType.PROTOBUF_NATIVE:
            if strategy is SchemaStrategy.ALWAYS_INCOMPATIBLE:
                _refuse(strategy, "no schema may follow another")
            old, new = root_message(present.schema), root_message(schema)
            if old != new:
                _refuse(
                    strategy,
                    "Protobuf root message change is not allowed: "
                    f"it is {new}, that of version {present.number} is {old}",
                )
        case SchemaType.JSON:
            _check_json(present, schema, strategy)
        case SchemaType.AVRO:
            _check_avro(present, schema, strategy)
        # PROTOBUF, and types without a definition: nothing in them is compared.
        case _:
            if strategy is SchemaStrategy.ALWAYS_INCOMPATIBLE:
                _refuse(strategy, "no schema may follow another")


def _check_avro(present: Version, schema: Schema, strategy: SchemaStrategy) -> None:
    if strategy is SchemaStrategy.ALWAYS_INCOMPATIBLE:
        _refuse(strategy, "no schema may follow another")
    new, old = parse_avro(schema.definition), parse_avro(present.schema.definition)
    #     reads_older         BACKWARD, FULL   the new schema reads what the old one wrote
    #     is_read_by_older    FORWARD, FULL    consumers with the old schema read what comes
    if strategy.reads_older and (problem := reading_problem(new, old)):
        _refuse(strategy, f"it cannot read version {present.number}: {problem}")
    if strategy.is_read_by_older and (problem := reading_problem(old, new)):
        _refuse(strategy, f"version {present.number} cannot read it: {problem}")


def _check_json(present: Version, schema: Schema, strategy: SchemaStrategy) -> None:
    """As AVRO; strategies that are not transitive allow a change to or from Jackson's form."""
    old, new = json_schema_id(present.schema), json_schema_id(schema)
    if old is None and new is None:
        _check_avro(present, schema, strategy)
    elif strategy.is_transitive:
        _refuse(strategy, f"version {present.number} and it are not both Avro schemas")
    # One in each form passes: topics of Pulsar 2.0 went over to Avro's form like that.
    elif old is not None and new is not None and old != new:
        _refuse(strategy, f"its id is {new}, that of version {present.number} is {old}")


def _refuse(strategy: SchemaStrategy, why: str) -> None:
    raise IncompatibleSchema(f"Incompatible schema by {strategy.value}: {why}")
