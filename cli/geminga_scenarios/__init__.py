"""A whole cluster in one thread, on simulated hosts: what the project's own stories are told on."""
