"""A method of authentication for tests: clients spell words, one a step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from geminga_broker.errors import NotAllowed
from geminga_broker.sessions.context import SessionContext
from geminga_server.authentication import (
    Accepted,
    Authentication,
    Challenge,
    Exchange,
    Outcome,
    Refused,
)
from geminga_server.authorization import Principal

REFRESH_CHECK_S = 60.0


@dataclass
class Spelling:
    """Challenges with each word but the first of ``words``; who spells all of them is let in as
    the first one, for ``valid_s``. A client that says "stuck" is examined for ever, one that
    says "bug" or "busy" meets an error."""

    context: SessionContext
    words: tuple[str, ...]
    valid_s: float | None = None
    name: str = "spelling"
    exchanges: int = 0

    def exchange(self) -> Exchange:
        self.exchanges += 1
        return SpellingExchange(self)


@dataclass
class SpellingExchange:
    method: Spelling
    spelt: list[str] = field(default_factory=list)

    async def begin(self, credentials: bytes) -> Outcome:
        assert not self.spelt
        return await self.answer(credentials)

    async def answer(self, data: bytes) -> Outcome:
        method, said = self.method, data.decode()
        await asyncio.sleep(0)
        if said == "stuck":
            await asyncio.get_running_loop().create_future()
        if said == "bug":
            raise ValueError("a bug of the method")
        if said == "busy":
            raise NotAllowed("the method is busy")
        self.spelt.append(said)
        place = len(self.spelt)
        if said != method.words[place - 1]:
            return Refused(f"{said} is wrong")
        if place < len(method.words):
            return Challenge(method.words[place].encode())
        now_ms = method.context.clock.wall_ms()
        expires_at_ms = None if method.valid_s is None else now_ms + int(method.valid_s * 1000)
        return Accepted(Principal(method.words[0]), expires_at_ms)


def spelling(
    context: SessionContext, *words: str, valid_s: float | None = None, name: str = "spelling"
) -> Spelling:
    """Let the sessions of ``context`` be authenticated so."""
    method = Spelling(context, words, valid_s, name)
    context.authentication = Authentication({name: method}, refresh_check_s=REFRESH_CHECK_S)
    return method
