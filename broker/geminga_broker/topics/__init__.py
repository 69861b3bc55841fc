"""Topics: producers in, subscriptions out, and what is to be kept in between."""
