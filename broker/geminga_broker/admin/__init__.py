"""The REST side of the broker: ``/admin/v2``, ``/lookup/v2`` and ``/metrics``, as Pulsar's.

In reading order:

- ``services`` has everything that the REST side works on; ``administration`` is what it does with
  the topics of this broker.
- ``routes`` holds one router per resource, in folders of the cluster, of namespaces and of topics;
  ``app`` makes the ASGI application of them.
- ``owner_routes`` and ``peers`` bring a request to the brokers that can answer it: by a redirect,
  or by asking them. ``bundle_calls`` has the requests that brokers make without a client.
- ``policy_routes`` makes routes of a table of policies; ``namespace_deletion`` deletes a namespace
  with its topics.
- ``documents`` has the JSON that is answered, and is pure; ``topics`` fills it from live topics.

Paths, JSON and the texts of refusals are upstream's, byte for byte where clients compare them.
Importing ``app`` or ``routes`` imports the web framework, which takes a third of a second: a broker
does so once its binary port is open. ``services``, ``administration``, ``bundle_calls``,
``documents`` and ``topics`` do not import it.
"""
