"""The REST side of the broker: ``/admin/v2``, ``/lookup/v2`` and ``/metrics``.

``facade`` says what it needs from the rest of the broker, ``stats`` and ``snapshot`` give the
shapes in which the rest of the broker tells what it is doing; these three import no web framework.
``app`` builds the ASGI application from one router per resource; importing it costs a third of a
second, so the broker does it after its binary port is open.
"""
