"""What a broker shows of itself: ``/metrics``, and the load that it reports to the others.

Those who work count, in plain attributes. ``collector`` reads them all in one pass into a
``snapshot``, whose fields say under which names of Pulsar's they are shown; ``exposition`` writes
it as text. A figure that is new is a field there, and a line in the collector.
"""
