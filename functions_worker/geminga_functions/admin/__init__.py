"""The REST side of a functions worker: ``app.worker_app`` makes the application.

It imports the web framework, which takes a third of a second: import it once the worker's port is
open. Every worker answers everything: changes go to the leader, questions about an instance to the
worker that runs it.
"""
