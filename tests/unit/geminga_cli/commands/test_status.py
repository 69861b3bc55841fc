"""Proves what ``geminga status`` tells of a cluster."""

from __future__ import annotations

import pytest
from tests.unit.geminga_cli.admin.recording_service import RecordingService

from geminga_cli.admin.errors import AdminRefused
from geminga_cli.commands.status import main, show_status, status_of

ANSWERS = {
    "brokers/health": "ok",
    "brokers/version": "4.0.6",
    "brokers": ["a:1", "b:2"],
    "brokers/leaderBroker": {"brokerId": "b:2", "serviceUrl": "http://b:2"},
    "clusters": ["east"],
    "tenants": ["public", "empty"],
    "namespaces/public": ["public/default", "public/functions"],
    "namespaces/empty": [],
}


def test_a_cluster() -> None:
    status = status_of(RecordingService(ANSWERS))
    assert list(show_status(status)) == [
        "health    ok",
        "version   4.0.6",
        "clusters  east",
        "brokers   2",
        "  a:1",
        "  b:2 (leader)",
        "tenants   2",
        "  public: default, functions",
        "  empty: no namespaces",
    ]


def test_what_is_wrong_is_part_of_it() -> None:
    answers = ANSWERS | {
        "brokers/health": AdminRefused(503, "Health check failed"),
        "brokers/leaderBroker": AdminRefused(404, "Couldn't find leader broker"),
    }
    status = status_of(RecordingService(answers))
    assert status["health"] == "Health check failed (HTTP 503)"
    assert status["leader"] is None


def test_where_no_broker_answers_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--admin-url", "http://127.0.0.1:1"]) == 1
    assert "no broker answers at http://127.0.0.1:1" in capsys.readouterr().err
