"""Proves that seeds that ever failed are clean, and that tests tell on purpose what they found."""

from __future__ import annotations

import pytest
from tests.project_files import ROOT
from tests.simulation.coverage.once_failed import ONCE_FAILED, OnceFailed
from tests.simulation.seeds import SHARES
from tests.simulation.stories import STORIES, story

UNIT = ROOT / "tests" / "unit"

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("entry", ONCE_FAILED, ids=lambda each: f"{each.story} {each.seed}")
def test_a_seed_that_once_failed_is_clean(entry: OnceFailed) -> None:
    story(entry.story)(entry.seed, **entry.options)


def test_what_each_seed_found_is_told_on_purpose_elsewhere() -> None:
    for entry in ONCE_FAILED:
        name, _, test = entry.kept_as.partition("::")
        assert f"def {test}(" in (UNIT / name).read_text(), entry


def test_every_story_has_a_share_of_the_seeds_and_a_name() -> None:
    assert STORIES.keys() == SHARES.keys()
