"""What the processes of servers share, whatever they serve: brokers, bookies, proxies, workers.

A part (one process: a broker, a bookie) is configured with ``config``, runs in ``run``, and is
controlled by its supervisor over ``control``. In reading order:

* ``run``, ``logging``, ``memory``, ``open_files``, ``ports``, ``directories``: a process, from its
  start to its exit code, and what it needs of its machine.
* ``config``: settings, declared once as fields of dataclasses.
* ``zookeeper``: a session with ZooKeeper. Only this folder imports kazoo.
* ``control``: the channel between a supervisor and its parts.
* ``authentication``, ``authorization``, ``connection_limits``, ``tls``: which clients a server
  serves, and how their connections are secured.
* ``http``, ``rest``, ``metrics``: serving and calling HTTP, REST APIs as Pulsar's, Prometheus.
* ``rates``: arithmetic of counts and times. It is pure.

Modules that a command needs for ``--help`` import nothing slow: uvicorn, pydantic, structlog, ssl,
kazoo and prometheus_client are imported at their first use. Nothing here knows what a topic or a
ledger holds.
"""
