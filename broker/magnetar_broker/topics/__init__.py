"""Topics: producers in, subscriptions out, and the dispatchers that choose who gets what."""
