"""What a process is told reaches auto-recovery, from wherever it was told."""

from __future__ import annotations

import pytest

from geminga_autorecovery.config import AutoRecoveryConfig, AutoRecoveryPartConfig
from geminga_server.config.loading import load_config
from geminga_server.errors import ConfigError


def test_variables_reach_it_under_upstreams_names() -> None:
    environment = {
        "GEMINGA_AUTORECOVERY_LOST_BOOKIE_RECOVERY_DELAY_S": "7",
        "GEMINGA_AUTORECOVERY_AUDITOR_PERIODIC_CHECK_INTERVAL_S": "8",
    }
    told = load_config(AutoRecoveryPartConfig, "autorecovery", environment=environment)
    assert told.auto_recovery == AutoRecoveryConfig(
        lost_bookie_recovery_delay_s=7, auditor_periodic_check_interval_s=8
    )


def test_a_value_out_of_range_is_refused_by_name() -> None:
    flags = {"http_port": 70_000}
    with pytest.raises(ConfigError, match="--http-port"):
        load_config(AutoRecoveryPartConfig, "autorecovery", environment={}, flags=flags)
