"""Which producers may publish to a topic, how fast, whether unencrypted, and with how much delay.

A rule that is off costs nothing: its step is put before the topic's other steps only while it is
on, and the producers get other steps when the policies change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from geminga_broker.client_session import host_of
from geminga_broker.delayed.schedule.deliver_at import is_delayed_longer
from geminga_broker.errors import BrokerError, InvalidRequest, NotAllowed, ProducerBusy
from geminga_broker.managed_ledger.reading.payloads import is_encrypted
from geminga_broker.managed_ledger.writing.append_request import (
    AppendRequest,
    messages_of,
    one_by_one,
    payload_of,
)
from geminga_broker.policies.publish import PUBLISH_FREELY, PublishPolicies
from geminga_broker.topics.decisions.publish_rate import PublishRate
from geminga_broker.topics.producers.producer import Producer, Step
from geminga_broker.topics.producers.producers import Producers
from geminga_runtime.clock import Clock


@dataclass(slots=True, eq=False)
class PublishGate:
    """The gate of one topic. ``apply`` is called first, and whenever the policies change;
    ``step_before`` after that."""

    # The topic's name, for error texts.
    name: str
    producers: Producers
    clock: Clock
    # Counts what is published to all topics of the broker; None without such a limit.
    broker_rate: PublishRate | None
    policies: PublishPolicies = field(default=PUBLISH_FREELY, init=False)
    # For how long the delivery of a message may be delayed; 0: for any time.
    delay_max_ms: int = field(default=0, init=False)
    # How often reading from a connection was paused, since the topic was loaded.
    pauses: int = field(default=0, init=False)
    # The topic's own rate, and all rates that are on.
    _rate: PublishRate | None = field(default=None, init=False)
    _rates: tuple[PublishRate, ...] = field(default=(), init=False)
    # What follows the step that counts; set when that step is put in.
    _behind_rate: Step = field(init=False)

    def apply(self, policies: PublishPolicies, delay_max_ms: int = 0) -> None:
        """Follow ``policies``, and this limit on delays, from now on."""
        # Only noted. ``PublishPath.apply`` gives the producers their new steps afterwards, in the
        # same turn.
        self.policies = policies
        self.delay_max_ms = delay_max_ms
        # A rate whose limits are the same goes on: a new one would begin with all its tokens.
        if self._rate is None or self._rate.limits != policies.limits:
            if self._rate is not None:
                # Connections that it paused hold it until they check it again.
                self._rate.is_over = True
            is_limited = not policies.limits.is_unlimited
            now_s = self.clock.monotonic()
            self._rate = PublishRate(policies.limits, now_s) if is_limited else None

    # Producers

    def check(self, producer: Producer) -> None:
        """Raise ``InvalidRequest`` or ``ProducerBusy`` if ``producer`` may not be let in."""
        # The order of the checks is upstream's: encryption before the limits, the topic's limit
        # before that of the host.
        policies = self.policies
        if policies.requires_encryption and not producer.is_encrypting:
            raise InvalidRequest(f"Encryption is required in {self.name}")
        # A producer that reconnects does not count twice. Its place is free again, as
        # ``Producers.add`` removes ``present``.
        present = self.producers.by_name.get(producer.name)
        if present is not None and producer.replaces(present):
            return
        if 0 < policies.producers_max <= len(self.producers.by_name):
            raise ProducerBusy(f"Topic '{self.name}' reached max producers limit")
        if policies.producers_per_host_max > 0:
            host = host_of(producer.session.address)
            of_host = sum(
                host_of(each.session.address) == host for each in self.producers.by_name.values()
            )
            if of_host >= policies.producers_per_host_max:
                raise ProducerBusy(f"Topic '{self.name}' reached max same address producers limit")

    def disconnect_disallowed(self) -> None:
        """Disconnect producers that the policies do not allow any more. They reconnect, and
        ``check`` refuses them with the reason."""
        if self.policies.requires_encryption:
            for producer in list(self.producers.by_name.values()):
                if not producer.is_encrypting:
                    # First removed, then told: a client that reconnects at once must find room.
                    self.producers.remove(producer)
                    producer.on_closed(producer)

    # Steps

    def step_before(self, following: Step) -> Step:
        """The gate's first step that is on; the last of them hands on to ``following``."""
        #     counting ─▶ encryption ─▶ delay ─▶ ``following``      each only while its rule is on
        #
        # Composed from the end: counting comes before the others, so that refused messages count.
        first = following
        if self.delay_max_ms:
            first = partial(_take_allowed, first, partial(_why_delayed, self.delay_max_ms))
        if self.policies.requires_encryption:
            first = partial(_take_allowed, first, _why_unencrypted)
        rates = (self._rate, self.broker_rate)
        self._rates = tuple(each for each in rates if each is not None)
        if self._rates:
            self._behind_rate, first = first, self._take_counted
        return first

    def release(self) -> None:
        """Drop the following step, which leads back to this gate: the topic is closed, and has no
        producers any more."""
        self._behind_rate = lambda _, __: None

    def _take_counted(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        """Count what is published, and pause reading from the connection while that is too much."""
        # Messages that have arrived are always taken: the limit works on the next ones. If the log
        # refuses the run, that is raised here, and nothing is counted.
        self._behind_rate(producer, requests)
        # 0 stands for a count that is not known, which is one message at least (``AppendRequest``).
        messages = sum(count or 1 for count in map(messages_of, requests))
        size_bytes = sum(map(len, map(payload_of, requests)))
        now_s = self.clock.monotonic()
        # Each rate that is exceeded pauses the session, which goes on when all of them allow it.
        for rate in self._rates:
            # May go below zero. The debt decides how long the connection is not read.
            rate.buckets.take(messages, size_bytes, now_s)
            if rate.wait_s(now_s) > 0:
                self.pauses += 1
                # The session asks ``wait_s`` again when the time is over: by then other connections
                # may have added to the debt. Many pauses for one rate are one entry there.
                producer.session.throttle(rate.wait_s)


def _why_unencrypted(payload: bytes) -> BrokerError | None:
    return None if is_encrypted(payload) else InvalidRequest("Messages must be encrypted")


def _why_delayed(limit_ms: int, payload: bytes) -> BrokerError | None:
    if not is_delayed_longer(payload, limit_ms):
        return None
    return NotAllowed(f"Exceeds max allowed delivery delay of {limit_ms} milliseconds")


def _take_allowed(
    following: Step,
    why_refused: Callable[[bytes], BrokerError | None],
    producer: Producer,
    requests: Sequence[AppendRequest],
) -> None:
    """Hand on those requests of a run whose payloads are not refused; ``producer`` is told of the
    others.

    The first refusal of a replicator's entry closes its producer. Then no request behind it is
    taken: if one were stored, the refused entry would be taken for a repeat when it comes again.
    """
    # The usual run has no refusals, and goes on as one. Judged completely before anything is handed
    # on: once a part of the run was taken, ``NotAllowed`` could not be raised for the whole any
    # more.
    refusals = [why_refused(payload_of(request)) for request in requests]
    if not any(refusals):
        following(producer, requests)
        return
    for request, refusal in zip(one_by_one(requests), refusals, strict=True):
        reason = refusal
        if reason is None:
            try:
                following(producer, [request])
            except NotAllowed as error:
                # It must not be raised: the caller would repeat the run, of which part was taken.
                reason = error
        # In its turn: the entries before it were handed on, so their receipts come first.
        if reason is not None:
            producer.fail(request, reason)
        if producer.is_closed:
            return
