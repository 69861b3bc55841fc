"""Bugs of which clients are told something untrue: planted for the checkers of histories."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from geminga_broker.managed_ledger.acknowledgement.acknowledged import Acknowledged
from geminga_broker.managed_ledger.acknowledgement.cursor_state import CursorState, state_from
from geminga_broker.managed_ledger.cursors import cursor_store
from geminga_broker.managed_ledger.positions import Entry
from geminga_broker.ownership.owned_bundles import OwnedBundles
from geminga_broker.ownership.owners import BundleNode, OwnerCache, Unowned
from geminga_cluster.election import LeaderElection
from geminga_protocol.records.cluster.brokers import LeaderBroker
from geminga_protocol.records.topics.cursor import CursorRecord, PositionRecord
from geminga_runtime.coordination import OnChange, SessionState

# So much later brokers hear that a bundle has another owner.
STALE_S = 1.0


def forget_single_acknowledgements(patch: pytest.MonkeyPatch) -> None:
    """Brokers that load a subscription know only up to where all of it is acknowledged."""

    def forget(record: CursorRecord, written: PositionRecord | None) -> CursorState:
        return replace(state_from(record, written), ranges=(), bits={})

    patch.setattr(cursor_store, "state_from", forget)


def send_again_what_lies_between(patch: pytest.MonkeyPatch) -> None:
    """A consumer that attaches again to a shared subscription gets what was acknowledged, too,
    where it lies between messages that were not."""

    def all_of_it(_: Acknowledged, ledger_id: int, run: list[Entry]) -> list[Entry]:
        del ledger_id
        return run

    patch.setattr(Acknowledged, "still_open", all_of_it)


def answer_from_a_stale_cache(patch: pytest.MonkeyPatch) -> None:
    """Brokers hear a second late that a bundle's owner has changed."""

    async def ask(owners: OwnerCache, path: str, on_change: OnChange) -> BundleNode | Unowned:
        def later() -> None:
            asyncio.get_running_loop().call_later(STALE_S, on_change)

        return owners.node(*await owners._coordination.get(path, on_change=later))

    patch.setattr(OwnerCache, "_ask", ask)


def keep_what_a_lost_session_had(patch: pytest.MonkeyPatch) -> None:
    """A broker whose session is over goes on as if it owned its bundles (upstream's #24478)."""

    def keep(owned: OwnedBundles) -> None:
        del owned

    patch.setattr(OwnedBundles, "_give_up_all", keep)


def lead_on_without_a_session(patch: pytest.MonkeyPatch) -> None:
    """A leader whose session is in doubt, or over, believes that it leads until it hears more."""

    def changed(election: LeaderElection[LeaderBroker], state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            election._run_again_soon()

    patch.setattr(LeaderElection, "_session_changed", changed)
