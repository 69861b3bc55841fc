"""What a broker shows of itself: ``/metrics``, and the load that it reports to the other brokers.

The parts of the broker count in plain attributes, and know nothing of this folder. In reading
order:

- ``snapshot``: all figures as plain values; each field names the Prometheus families it shows.
- ``collector`` reads the parts in one pass into a snapshot, so that sums agree with their terms.
- ``exposition`` writes a snapshot as text, piece by piece.

A new figure is a field of the snapshot, and a line in the collector. Names and labels are
Pulsar's, as dashboards ask for them.
"""
