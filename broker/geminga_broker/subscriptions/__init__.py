"""Subscriptions: consumers, and the dispatchers that choose who of them gets what."""
