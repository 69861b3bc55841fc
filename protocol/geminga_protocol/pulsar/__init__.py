"""Pulsar's binary protocol as values: bytes to commands and names, and back."""
