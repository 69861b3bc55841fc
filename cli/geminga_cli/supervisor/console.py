"""What the supervisor prints for people and programs; its log goes elsewhere, to standard error."""

from __future__ import annotations


def ready_line(service_url: str, web_service_url: str) -> str:
    """The one line that tells programs that everything answers."""
    return f"READY {service_url} {web_service_url}"


def next_steps(service_url: str, web_service_url: str) -> str:
    """What somebody new may try now."""
    return (
        "Try:   pip install pulsar-client\n"
        f"       python -c \"import pulsar; c = pulsar.Client('{service_url}'); "
        "c.create_producer('hello').send(b'hi'); c.close()\"\n"
        f"       curl {web_service_url}/admin/v2/persistent/public/default/hello/stats\n"
        "Stop:  Ctrl-C"
    )


def no_sync_warning() -> str:
    """What --no-sync means, loudly."""
    return (
        "*** --no-sync: NOTHING IS SYNCED TO DISK. A power cut or a crash of this machine LOSES "
        "ACKNOWLEDGED MESSAGES and may ruin the data directory. "
        "Use it for tests whose data nobody needs. ***"
    )
