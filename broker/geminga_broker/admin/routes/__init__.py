"""One router per resource. What a route is called and answers is Pulsar's; the texts too."""
