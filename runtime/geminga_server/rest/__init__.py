"""A kit for REST APIs in the manner of Pulsar's, for any server.

``app`` makes an application of routers. Its requests are routed on the raw path (``raw_path``), and
their right is checked before handlers run (``access``). Handlers read names, flags and bodies with
``parameters``, answer with ``answers`` and refuse with ``errors``; ``api_page`` lists all calls for
people.

It imports the web framework, which takes a third of a second: only the package of an application
imports it, and a server imports that once its binary port is open. ``geminga_server.http`` serves
the applications.
"""
