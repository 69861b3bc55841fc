"""What a process is told reaches auto-recovery, from wherever it was told."""

from __future__ import annotations

import pytest

from geminga_autorecovery import AutoRecoveryOptions
from geminga_autorecovery.part_settings import AutoRecoveryPartSettings
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError


def test_told_nothing_it_has_the_defaults() -> None:
    told = load_config(AutoRecoveryPartSettings, "autorecovery", environment={})
    assert told.auto_recovery() == AutoRecoveryOptions()


def test_variables_reach_it() -> None:
    environment = {"GEMINGA_AUTORECOVERY_LOST_BOOKIE_RECOVERY_DELAY_S": "7"}
    told = load_config(AutoRecoveryPartSettings, "autorecovery", environment=environment)
    assert told.auto_recovery() == AutoRecoveryOptions(lost_bookie_recovery_delay_s=7)


def test_a_value_nobody_can_work_with_is_refused_by_name() -> None:
    flags = {"http_port": 70_000}
    with pytest.raises(ConfigError, match="--http-port"):
        load_config(AutoRecoveryPartSettings, "autorecovery", environment={}, flags=flags)
