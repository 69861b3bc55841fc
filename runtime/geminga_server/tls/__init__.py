"""TLS: what servers and their clients are configured with (``config``), and certificates that are
replaced while a server runs (``renewal``)."""
