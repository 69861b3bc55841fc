"""A whole cluster in one thread, in virtual time, from a seed: for our tests and for users'."""
