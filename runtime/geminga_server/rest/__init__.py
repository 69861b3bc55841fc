"""What a REST side in the manner of Pulsar's is made of, whichever server it belongs to.

``app`` makes an application of routers; its requests are routed on the raw path (``raw_path``) and
ask for their right first (``access``). Handlers find names, flags and bodies with ``parameters``,
answer with ``answers`` and refuse with ``errors``; ``api_page`` shows people what there is.

It imports the web framework, which takes a third of a second: only the package of an application
imports it, and a server imports that once its binary port is open. ``geminga_server.http`` serves
what is made here.
"""
