"""Connections: requests in, answers out, in the protocol's second and third version."""
