"""Which schemas may follow a topic's present one, and which producers need one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from geminga_broker.policies.levels import Levels
from geminga_server.config import Upstream


class SchemaStrategy(Enum):
    """Upstream's ``SchemaCompatibilityStrategy``: which schema must be able to read which data.

    BACKWARD: the new schema reads what was written with the present one; FORWARD: the other way
    round; FULL: both. Transitive ones demand that for all versions, the others for the newest.
    """

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all versions count, not the newest alone."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def reads_older(self) -> bool:
        """Whether the new schema must read what was written with earlier ones."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        """Whether earlier schemas must read what will be written with the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


# The names that the older policy has for the same. Upstream uses it where the newer one is not set.
AUTO_UPDATE_STRATEGIES = {
    "AutoUpdateDisabled": SchemaStrategy.ALWAYS_INCOMPATIBLE,
    "Backward": SchemaStrategy.BACKWARD,
    "Forward": SchemaStrategy.FORWARD,
    "Full": SchemaStrategy.FULL,
    "AlwaysCompatible": SchemaStrategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": SchemaStrategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": SchemaStrategy.FORWARD_TRANSITIVE,
    "FullTransitive": SchemaStrategy.FULL_TRANSITIVE,
}
# The names that records and requests have; the type of the settings has to list them again.
STRATEGY_NAMES = tuple(each.value for each in SchemaStrategy)
StrategyName = Literal[
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """What holds where neither topic nor namespace sets it."""

    schema_compatibility_strategy: Annotated[
        StrategyName, Upstream("schemaCompatibilityStrategy")
    ] = "FULL"
    """Which schema may follow a topic's present one. UNDEFINED is FULL."""
    system_topic_schema_compatibility_strategy: Annotated[
        StrategyName, Upstream("systemTopicSchemaCompatibilityStrategy")
    ] = "ALWAYS_COMPATIBLE"
    """The same for system topics."""
    allow_auto_update_schema: Annotated[bool, Upstream("isAllowAutoUpdateSchemaEnabled")] = True
    """Whether a producer registers its schema where the topic does not have it."""
    schema_validation_enforced: Annotated[bool, Upstream("isSchemaValidationEnforced")] = False
    """Whether a producer without a schema is refused where the topic has one."""


@dataclass(frozen=True, slots=True)
class SchemaPolicies:
    """What holds for a topic."""

    # Never UNDEFINED.
    strategy: SchemaStrategy = SchemaStrategy.FULL
    allows_auto_update: bool = True
    is_validation_enforced: bool = False


# Upstream's defaults.
BY_DEFAULT = SchemaPolicies()


def schema_policies(
    config: SchemaConfig, levels: Levels, *, is_system: bool = False
) -> SchemaPolicies:
    """The schema policies of a topic; no policy applies to the strategy of system topics."""
    if is_system:
        strategies = [_known(config.system_topic_schema_compatibility_strategy)]
    else:
        # The nearest level first; the older policy of the namespace counts after its newer one.
        # None among them, and UNDEFINED, mean that the level does not say.
        older = levels.namespace.schema_auto_update_compatibility_strategy or ""
        strategies = [
            _known(levels.topic.schema_compatibility_strategy),
            _known(levels.namespace.schema_compatibility_strategy),
            AUTO_UPDATE_STRATEGIES.get(older),
            _known(config.schema_compatibility_strategy),
        ]
    # Topics cannot set it, as upstream. Only two levels: the namespace, and the broker below.
    allows = levels.namespace.is_allow_auto_update_schema
    enforced = levels.topic.schema_validation_enforced
    if enforced is None:
        enforced = levels.namespace.schema_validation_enforced
    return SchemaPolicies(
        # Where all levels say UNDEFINED, FULL holds.
        next(filter(None, strategies), SchemaStrategy.FULL),
        config.allow_auto_update_schema if allows is None else allows,
        # As upstream, the other levels cannot take back what the broker's setting demands.
        # ``enforced`` is a plain flag in the record of a namespace, where False and "not set" are
        # the same.
        config.schema_validation_enforced or enforced,
    )


def _known(strategy: str | None) -> SchemaStrategy | None:
    """The strategy of that name; None for UNDEFINED, and for names that only newer brokers know."""
    is_said = strategy in STRATEGY_NAMES and strategy != "UNDEFINED"
    return SchemaStrategy(strategy) if is_said else None
