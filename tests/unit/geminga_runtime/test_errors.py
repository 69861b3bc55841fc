"""Every error has a code for the client and says whether asking again can help."""

from __future__ import annotations

from geminga_runtime.coordination import ConnectionLost, CoordinationError, NodeMissing
from geminga_runtime.errors import GemingaError


def test_an_error_without_a_code_of_its_own_is_unknown_and_final() -> None:
    assert (GemingaError.code, GemingaError.retry) == ("UnknownError", False)


def test_errors_inherit_the_code_of_their_branch() -> None:
    assert NodeMissing("/a").code == CoordinationError.code == "MetadataError"


def test_only_a_lost_connection_is_worth_another_try() -> None:
    assert ConnectionLost("gone").retry
    assert not NodeMissing("/a").retry
