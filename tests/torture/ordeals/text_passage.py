"""The torture test: a real text goes through a topic while broker and bookie are killed.

What must hold: every send is confirmed in time; a subscriber that listens meanwhile, and a reader
that comes afterwards, each get the whole text in order, repeats apart.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pulsar
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.torture.evidence.passage import (
    SEND_TIMEOUT_S,
    SUBSCRIPTION,
    Arrived,
    PassageFailed,
    Sender,
    acknowledge_what_returns,
    read_back,
    receive_all,
    wait_for_empty_backlog,
)
from tests.torture.evidence.text import Text, write_text
from tests.torture.harm.killer import Killer

TOPIC = "persistent://public/default/torture"
# How often the sender may go back for one kill: when its connection breaks, and when storing fails
# because the other one is not whole yet.
RETURNS_A_KILL_MAX = 3


@dataclass(frozen=True, slots=True)
class Ordeal:
    """How much text at least, how often something is struck on the way, and within which time each
    line must be confirmed all the same."""

    lines: int
    text_bytes: int
    strikes: int
    seed: int
    send_timeout_s: int = SEND_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened; that nothing was lost is shown by the absence of an exception."""

    text: Text
    kills: dict[str, int]
    subscriber: Arrived
    reader: Arrived
    took_s: float

    def __str__(self) -> str:
        """One line for people."""
        kills = ", ".join(f"{part} killed {count} times" for part, count in self.kills.items())
        return (
            f"{self.text.lines} lines, {self.text.size_bytes / 1e6:.1f} MB in {self.took_s:.0f} s; "
            f"{kills}; the topic holds {self.reader.resent} lines twice, the subscriber was given "
            f"{self.subscriber.redelivered} again; order and digest {self.text.digest[:16]} hold"
        )


def torture(cluster: StandaloneProcess, ordeal: Ordeal, directory: Path) -> Outcome:
    """Run it on ``cluster``, which is harmed; the text is kept in ``directory``.

    Raises ``PassageFailed`` when something was lost, changed, overtaken or not confirmed in time.
    """
    begun = time.monotonic()
    text = write_text(directory / "text", lines_min=ordeal.lines, bytes_min=ordeal.text_bytes)
    killer = Killer(cluster, seed=ordeal.seed, strikes=ordeal.strikes, lines=text.lines)
    _keep_what_is_acknowledged(cluster)
    with client_of(cluster.service_url) as client, _another_process() as process:
        client.subscribe(
            TOPIC, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest
        ).close()
        subscriber = process.submit(receive_all, cluster.service_url, TOPIC, text.lines)
        sender = Sender(
            client,
            TOPIC,
            on_confirmed=killer.confirmed,
            send_timeout_s=ordeal.send_timeout_s,
        )
        with killer:
            sender.send_all(text)
        received = subscriber.result()
        acknowledge_what_returns(client, TOPIC)
        wait_for_empty_backlog(cluster.web_service_url, TOPIC)
        read = read_back(client, TOPIC)
    returns_max = RETURNS_A_KILL_MAX * len(killer.kills)
    for name, each in (("subscriber", received), ("reader", read)):
        if each.returns > returns_max:
            raise PassageFailed(f"the {name} got lines again in {each.returns} places")
        if (each.lines, each.digest) != (text.lines, text.digest):
            raise PassageFailed(f"the {name} got {each.lines} of {text.lines} lines, {each.digest}")
    return Outcome(
        text=text,
        kills={part: killer.kills.count(part) for part in sorted(set(killer.kills))},
        subscriber=received,
        reader=read,
        took_s=time.monotonic() - begun,
    )


def _keep_what_is_acknowledged(cluster: StandaloneProcess) -> None:
    """The reader comes when the subscriber is done: until then its ledgers must not be trimmed."""
    for_ever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    path = "/admin/v2/namespaces/public/default/retention"
    status, _ = rest(cluster.web_service_url, "POST", path, for_ever)
    assert status == 204, f"retention was not set: {status}"


def _another_process() -> ProcessPoolExecutor:
    """For the subscriber: beside it the sender would have half an interpreter.

    Not a fork, which would bring half of the client's threads along.
    """
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))
