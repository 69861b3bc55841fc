"""Proves that a port that was given twice is noticed, and 0 is not one."""

from __future__ import annotations

import pytest

from geminga_server.errors import SettingsError
from geminga_server.ports import require_distinct


def test_the_same_port_twice_is_refused_and_both_options_are_named() -> None:
    with pytest.raises(SettingsError, match="--port and --web-port are both 7000"):
        require_distinct({"--port": 7000, "--other": 7001, "--web-port": 7000})


def test_any_free_port_may_be_wanted_as_often_as_one_likes() -> None:
    require_distinct({"--port": 0, "--web-port": 0, "--other": 1})
