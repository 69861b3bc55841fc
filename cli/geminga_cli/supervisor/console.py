"""What the supervisor prints on standard output. Its log goes to standard error."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

# Commands that publish a message: by Pulsar's own client where it is installed, else by ours.
OFFICIAL_CLIENT = (
    "{python} -c \"import pulsar; c = pulsar.Client('{url}'); "
    "c.create_producer('hello').send(b'hi'); c.close()\""
)
OWN_CLIENT = """{python} -c "
import asyncio, geminga
async def main():
    async with geminga.connect('{url}') as client:
        producer = await client.producer('hello')
        await producer.send(b'hi')
asyncio.run(main())\""""


def ready_line(service_url: str, web_service_url: str) -> str:
    """The one line that tells programs that everything answers."""
    return f"READY {service_url} {web_service_url}"


@dataclass(frozen=True, slots=True)
class Tools:
    """What the user can try a cluster with."""

    # Our own Python, as a word of a shell in the directory that we were started in.
    python: str
    has_official_client: bool
    has_curl: bool

    @classmethod
    def at_hand(cls) -> Tools:
        """The tools that this process finds."""
        python, here = Path(sys.executable), Path.cwd()
        # Not ``resolve``: in a virtual environment that would be the system's Python. Short where
        # it can be: people read and copy the line.
        shown = python.relative_to(here) if python.is_relative_to(here) else python
        return cls(
            shlex.quote(str(shown)),
            has_official_client=find_spec("pulsar") is not None,
            has_curl=which("curl") is not None,
        )


def next_steps(service_url: str, web_service_url: str, tools: Tools) -> str:
    """What a new user may try now: commands for a shell, which run as they are printed."""
    publish = OFFICIAL_CLIENT if tools.has_official_client else OWN_CLIENT
    stats = f"{web_service_url}/admin/v2/persistent/public/default/hello/stats"
    look = (
        f"curl {stats}"
        if tools.has_curl
        else f'{tools.python} -c "from urllib.request import urlopen; '
        f"print(urlopen('{stats}').read().decode())\""
    )
    # Not indented: Python would refuse indented lines, once they are copied.
    commands = f"{publish.format(python=tools.python, url=service_url)}\n{look}"
    return f"Try:   (in another terminal)\n\n{commands}\n\nStop:  Ctrl-C"


def no_sync_warning() -> str:
    """What --no-sync means, in a way that is not overlooked."""
    return (
        "*** --no-sync: NOTHING IS SYNCED TO DISK. A power cut or a crash of this machine LOSES "
        "ACKNOWLEDGED MESSAGES and may ruin the data directory. "
        "Use it only for tests whose data may be lost. ***"
    )
