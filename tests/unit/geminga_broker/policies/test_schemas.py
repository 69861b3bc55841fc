"""Which compatibility strategy holds, and who may register schemas."""

from __future__ import annotations

from typing import Any, get_args

from geminga_broker.policies.levels import Levels
from geminga_broker.policies.schemas import (
    SchemaConfig,
    SchemaStrategy,
    StrategyName,
    schema_policies,
)
from geminga_protocol.records.cluster.namespaces import Policies


def strategy(config: SchemaConfig | None = None, **namespace: Any) -> SchemaStrategy:
    said = Levels(namespace=Policies(**namespace))
    return schema_policies(config or SchemaConfig(), said).strategy


def test_the_names_in_the_settings_are_all_strategies() -> None:
    assert set(get_args(StrategyName)) == {each.value for each in SchemaStrategy}


def test_undefined_is_the_next_level_and_in_the_end_full() -> None:
    assert strategy() is SchemaStrategy.FULL
    undefined = SchemaConfig(schema_compatibility_strategy="UNDEFINED")
    assert strategy(undefined) is SchemaStrategy.FULL
    forward = SchemaConfig(schema_compatibility_strategy="FORWARD")
    assert strategy(forward, schema_compatibility_strategy="UNDEFINED") is SchemaStrategy.FORWARD


def test_the_older_policy_counts_where_the_newer_one_is_not_set() -> None:
    older: dict[str, Any] = {"schema_auto_update_compatibility_strategy": "BackwardTransitive"}
    assert strategy(**older) is SchemaStrategy.BACKWARD_TRANSITIVE
    assert strategy(**older, schema_compatibility_strategy="FORWARD") is SchemaStrategy.FORWARD
    disabled: dict[str, Any] = {"schema_auto_update_compatibility_strategy": "AutoUpdateDisabled"}
    assert strategy(**disabled) is SchemaStrategy.ALWAYS_INCOMPATIBLE


def test_a_strategy_of_a_newer_broker_is_not_said() -> None:
    assert strategy(schema_compatibility_strategy="SIDEWAYS") is SchemaStrategy.FULL


def test_no_policy_concerns_the_topics_of_brokers() -> None:
    said = Levels(namespace=Policies(schema_compatibility_strategy="BACKWARD"))
    held = schema_policies(SchemaConfig(), said, is_system=True)
    assert held.strategy is SchemaStrategy.ALWAYS_COMPATIBLE


def test_a_namespace_may_take_back_auto_update_and_not_validation() -> None:
    config = SchemaConfig(allow_auto_update_schema=False, schema_validation_enforced=True)
    held = schema_policies(config, Levels())
    assert (held.allows_auto_update, held.is_validation_enforced) == (False, True)
    said = Levels(namespace=Policies(is_allow_auto_update_schema=True))
    held = schema_policies(config, said)
    assert (held.allows_auto_update, held.is_validation_enforced) == (True, True)
