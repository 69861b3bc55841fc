"""The limit on open files is raised, and divided so that clients keep no operator out."""

from __future__ import annotations

import resource

import pytest

from geminga_server import open_files as module
from geminga_server.errors import ServerStartError
from geminga_server.open_files import CLIENTS_MIN, open_files, raise_limit, share_out

INFINITY = resource.RLIM_INFINITY


class System:
    """A system's limits for one process; ``refused_from`` is more than its kernel allows."""

    def __init__(self, soft: int, hard: int, refused_from: int | None = None) -> None:
        self.limits = (soft, hard)
        self.refused_from = refused_from

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        wanted = limits[0]
        if self.refused_from is not None and (wanted == INFINITY or wanted >= self.refused_from):
            raise ValueError("current limit exceeds maximum limit")
        self.limits = limits


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> type[System]:
    """Put in place of this system's: ``limits(soft, hard)``."""

    class Installed(System):
        def __init__(self, soft: int, hard: int, refused_from: int | None = None) -> None:
            super().__init__(soft, hard, refused_from)
            monkeypatch.setattr(resource, "getrlimit", self.getrlimit)
            monkeypatch.setattr(resource, "setrlimit", self.setrlimit)

    return Installed


def test_the_soft_limit_is_raised_to_the_hard_one(limits: type[System]) -> None:
    system = limits(1_024, 4_096)
    assert raise_limit() == 4_096
    assert system.limits == (4_096, 4_096)


def test_a_limit_without_bounds_counts_as_a_number(limits: type[System]) -> None:
    limits(INFINITY, INFINITY)
    assert raise_limit() == module.UNLIMITED
    assert open_files().limit == module.UNLIMITED


def test_where_the_kernel_allows_less_than_it_says_some_of_it_is_had(limits: type[System]) -> None:
    system = limits(256, INFINITY, refused_from=10_241)
    assert raise_limit() == module.MACOS_MAX
    assert system.limits == (module.MACOS_MAX, INFINITY)


def test_a_limit_that_cannot_be_raised_stays_as_it_is(limits: type[System]) -> None:
    system = limits(256, INFINITY, refused_from=257)
    assert raise_limit() == 256
    assert system.limits == (256, INFINITY)


@pytest.mark.parametrize("limit", [96, 256, 1_024, 4_096, 20_000, 1_048_576])
def test_the_shares_are_the_limit_and_clients_have_the_rest(limit: int) -> None:
    shares = share_out(limit)
    assert shares.own + shares.http + shares.clients == limit
    assert module.OWN_MIN <= shares.own <= module.OWN_MAX
    assert module.HTTP_MIN <= shares.http <= module.HTTP_MAX
    assert shares.clients >= CLIENTS_MIN
    assert share_out(limit + 8).clients > shares.clients


def test_a_part_with_many_files_of_its_own_leaves_fewer_to_clients() -> None:
    shares = share_out(256, own_min=192)
    assert (shares.own, shares.http, shares.clients) == (192, 32, 32)


def test_a_limit_without_room_for_clients_is_refused_in_words(limits: type[System]) -> None:
    limits(64, 64)
    with pytest.raises(ServerStartError, match=r"64 open files .*96 are needed.*ulimit -n 65536"):
        open_files()
