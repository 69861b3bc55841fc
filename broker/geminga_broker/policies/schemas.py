"""Which schemas may follow a topic's, who may register one, and who must have one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from geminga_broker.policies.errors import InvalidPolicy
from geminga_broker.policies.levels import Levels
from geminga_server.config import Upstream


class SchemaStrategy(Enum):
    """Upstream's ``SchemaCompatibilityStrategy``: who must be able to read whom. BACKWARD: the new
    schema what was written with the present one; FORWARD: the other way round; FULL: both.
    Transitive ones ask that of all versions, the others of the newest."""

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


# The older policy's words for the same; upstream looks at it where the newer one is not set.
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
    """What holds where neither topic nor namespace says something."""

    schema_compatibility_strategy: Annotated[
        StrategyName, Upstream("schemaCompatibilityStrategy")
    ] = "FULL"
    """Which schema may follow a topic's present one. UNDEFINED is FULL."""
    system_topic_schema_compatibility_strategy: Annotated[
        StrategyName, Upstream("systemTopicSchemaCompatibilityStrategy")
    ] = "ALWAYS_COMPATIBLE"
    """The same for the topics that brokers themselves write to."""
    allow_auto_update_schema: Annotated[bool, Upstream("isAllowAutoUpdateSchemaEnabled")] = True
    """Whether a producer registers a schema that the topic does not have."""
    schema_validation_enforced: Annotated[bool, Upstream("isSchemaValidationEnforced")] = False
    """Whether a producer without a schema is refused where the topic has one."""


@dataclass(frozen=True, slots=True)
class SchemaPolicies:
    """What holds for a topic; ``strategy`` is never UNDEFINED."""

    strategy: SchemaStrategy = SchemaStrategy.FULL
    allows_auto_update: bool = True
    is_validation_enforced: bool = False


BY_DEFAULT = SchemaPolicies()


def schema_policies(
    config: SchemaConfig, said: Levels, *, is_system: bool = False
) -> SchemaPolicies:
    """What holds for a topic of which the levels say this."""
    allows = said.namespace.is_allow_auto_update_schema
    enforced = said.topic.schema_validation_enforced
    if enforced is None:
        enforced = said.namespace.schema_validation_enforced
    return SchemaPolicies(
        _strategy(config, said, is_system=is_system),
        config.allow_auto_update_schema if allows is None else allows,
        # The broker's word counts as well: neither level can take it back, as in upstream.
        config.schema_validation_enforced or enforced,
    )


def _strategy(config: SchemaConfig, said: Levels, *, is_system: bool) -> SchemaStrategy:
    """The nearest word that is not UNDEFINED. No policy concerns the brokers' own topics."""
    if is_system:
        levels = [_known(config.system_topic_schema_compatibility_strategy)]
    else:
        older = said.namespace.schema_auto_update_compatibility_strategy or ""
        levels = [
            _known(said.topic.schema_compatibility_strategy),
            _known(said.namespace.schema_compatibility_strategy),
            AUTO_UPDATE_STRATEGIES.get(older),
            _known(config.schema_compatibility_strategy),
        ]
    return next(filter(None, levels), SchemaStrategy.FULL)


def _known(strategy: str | None) -> SchemaStrategy | None:
    """What a level says; UNDEFINED, and a word that only newer brokers know, says nothing."""
    is_said = strategy in STRATEGY_NAMES and strategy != "UNDEFINED"
    return SchemaStrategy(strategy) if is_said else None


def check_strategy(strategy: str) -> None:
    """Raise ``InvalidPolicy`` for a strategy there is not."""
    if strategy not in STRATEGY_NAMES:
        raise InvalidPolicy(f"The strategy should be one of {', '.join(STRATEGY_NAMES)}")


def check_auto_update_strategy(strategy: str) -> None:
    """Raise ``InvalidPolicy`` for a strategy of the older policy that there is not."""
    if strategy not in AUTO_UPDATE_STRATEGIES:
        raise InvalidPolicy(f"The strategy should be one of {', '.join(AUTO_UPDATE_STRATEGIES)}")
