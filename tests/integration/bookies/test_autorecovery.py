"""`geminga autorecovery`: copies what a lost bookie held, where no bookie does that itself."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Generator

import pytest
from tests.integration.processes.bookie_process import (
    bookie_admin,
    bookie_process,
    part_process,
    zookeeper_of,
)
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.stored_ledgers import should_hold, stored_ledgers
from tests.integration.waiting import eventually

ENTRIES = [b"%d" % number for number in range(50)]
LOST = "lost"
RECOVERED_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """Three bookies without auto-recovery."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GEMINGA_BOOKIE_AUTO_RECOVERY_ENABLED", "false")
        started = StandaloneProcess.start(
            tmp_path_factory.mktemp("autorecovery") / "data", "--num-bookies", "3"
        )
    yield started
    started.stop()


def test_a_process_of_its_own_copies_what_a_lost_bookie_held(cluster: StandaloneProcess) -> None:
    async def write() -> int:
        async with stored_ledgers(zookeeper_of(cluster)) as stored:
            others = sorted(await stored.bookies() - {LOST})
            return await stored.write(ENTRIES, (3, 3, 2), (LOST, *others[:2]))

    async def is_whole() -> bool:
        async with stored_ledgers(zookeeper_of(cluster)) as stored:
            metadata = await stored.ledgers.metadata(ledger_id)
            wanted = should_hold(metadata, len(ENTRIES))
            holders = await stored.holders(ledger_id, len(ENTRIES))
            return LOST not in wanted[0] and holders == wanted and not await stored.marked()

    with bookie_process(cluster, LOST, "--no-auto-recovery-enabled") as lost:
        ledger_id = asyncio.run(write())
        with part_process(cluster, "autorecovery", "copier", "--recovery-id", "copier") as copier:
            port = re.search(r"http_port=(\d+)", copier.wait_for("auto-recovery serves"))
            assert port is not None
            url = f"http://127.0.0.1:{port[1]}"
            assert urllib.request.urlopen(f"{url}/health").status == 200
            eventually(
                lambda: urllib.request.urlopen(f"{url}/metrics/").read().decode(),
                lambda page: "geminga_autorecovery_is_auditor 1.0" in page,
            )
            assert "copier" in bookie_admin(cluster, "who-is-auditor")
            lost.kill()
            eventually(lambda: asyncio.run(is_whole()), bool, RECOVERED_S)
