"""What Pulsar's Java client shows of us; each scenario is a method of that name in ``programs``."""

from __future__ import annotations

import pytest
from tests.java_client.themes import Scenario, Themes, all_scenarios


@pytest.mark.parametrize("scenario", all_scenarios(), ids=str)
def test_the_java_client_sees_that(themes: Themes, scenario: Scenario) -> None:
    complaint = themes.complaint(scenario)
    assert complaint is None, complaint
