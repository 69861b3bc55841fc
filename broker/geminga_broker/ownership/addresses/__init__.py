"""Where brokers are reached: ``address`` of one broker, ``listeners`` from its config. Pure."""
