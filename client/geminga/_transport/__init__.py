"""The lowest layer of the client: connections to brokers, and which broker serves a topic.

In reading order: ``service_urls`` are addresses and routes; a ``Connection`` shakes hands, pings,
matches answers with requests (``requests``), and hands what else a broker sends to the producer or
consumer that registered for it; ``connection_pool`` keeps one connection to each broker; ``lookup``
and ``http_lookup`` find the broker that serves a topic. A connection never reconnects, and no
module here looks into a payload.
"""
