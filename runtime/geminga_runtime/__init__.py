"""What everything stands on: services, clock, network, disk, coordination. No dependency."""
