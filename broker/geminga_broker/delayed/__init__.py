"""Delayed messages of a subscription: which there are, when they are due, what of that is kept."""
