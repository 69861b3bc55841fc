"""The lowest floor of the client: connections to brokers, and which broker serves a topic.

``connection_pool`` keeps one connection to each broker, ``lookup`` finds the broker that serves a
topic. A ``Connection`` shakes hands, notices silence, matches answers with requests, and hands
what a broker sends of its own accord to the producer or consumer that registered for it. Nothing
here reconnects, and nothing looks into a payload.
"""
