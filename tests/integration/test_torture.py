"""A real text comes through a topic complete and in order while broker and bookie are killed.

The small size; ``python -m tests.torture`` runs the same with a hundred megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.cluster_process import StandaloneProcess
from tests.torture.killer import TARGETS
from tests.torture.torture import Ordeal, torture


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_overtaken_while_broker_and_bookie_are_killed(
    start_standalone: Callable[..., StandaloneProcess], tmp_path: Path
) -> None:
    ordeal = Ordeal(lines=60_000, text_bytes=2_000_000, strikes=len(TARGETS), seed=20)
    outcome = torture(start_standalone(), ordeal, tmp_path)
    assert outcome.text.lines >= ordeal.lines
    assert outcome.subscriber.digest == outcome.reader.digest == outcome.text.digest
    assert outcome.kills == {"broker": 5, "bookie": 3}, "every target is struck once"
