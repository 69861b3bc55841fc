"""Who may publish to a topic, how fast, whether in the clear, and with how much delay.

What is off costs nothing: the gate puts its steps before the topic's own, which producers are
handed, and hands out others when the policies change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from geminga_broker.client_session import host_of
from geminga_broker.delayed.deliver_at import is_delayed_longer
from geminga_broker.errors import BrokerError, InvalidRequest, NotAllowed, ProducerBusy
from geminga_broker.managed_ledger.append_request import (
    AppendRequest,
    messages_of,
    one_by_one,
    payload_of,
)
from geminga_broker.managed_ledger.payloads import is_encrypted
from geminga_broker.policies.publishing import PUBLISH_FREELY, PublishPolicies
from geminga_broker.topics.decisions.publish_rate import PublishRate
from geminga_broker.topics.part import Step, TopicPart
from geminga_broker.topics.producing.producer import Producer
from geminga_broker.topics.producing.producers import Producers
from geminga_runtime.clock import Clock


def _take_nothing(_: Producer, __: Sequence[AppendRequest]) -> None:
    """The step after the gate of a closed topic, which has no producers."""


class PublishGate:
    """Of the topic ``name``, with these ``producers``; ``broker_rate`` counts all topics of the
    broker. ``apply`` comes first and whenever the policies change, then ``step_before``."""

    __slots__ = (
        "_behind_encryption",
        "_behind_rate",
        "_broker_rate",
        "_clock",
        "_name",
        "_producers",
        "_rate",
        "_rates",
        "pauses",
        "policies",
    )

    def __init__(
        self, name: str, producers: Producers, clock: Clock, broker_rate: PublishRate | None
    ) -> None:
        self.policies = PUBLISH_FREELY
        # How often somebody was not read for a while, since the topic was loaded.
        self.pauses = 0
        self._name = name
        self._producers = producers
        self._clock = clock
        self._broker_rate = broker_rate
        self._rate: PublishRate | None = None
        self._rates: tuple[PublishRate, ...] = ()

    def apply(self, policies: PublishPolicies) -> None:
        """From now on these hold."""
        self.policies = policies
        if self._rate is None or self._rate.limits != policies.limits:
            if self._rate is not None:
                self._rate.is_over = True
            is_limited = not policies.limits.is_unlimited
            now_s = self._clock.monotonic()
            self._rate = PublishRate(policies.limits, now_s) if is_limited else None

    def disconnect_disallowed(self) -> None:
        """Part with the producers that may not be here any more; coming back, they are told why."""
        if self.policies.requires_encryption:
            for producer in self._producers:
                if not producer.is_encrypting:
                    self._producers.let_go(producer)

    def check(self, producer: Producer) -> None:
        """Raise ``InvalidRequest``, ``ProducerBusy`` for one that may not be let in."""
        if self.policies.requires_encryption and not producer.is_encrypting:
            raise InvalidRequest(f"Encryption is required in {self._name}")
        present = self._producers.get(producer.name)
        if present is not None and producer.replaces(present):
            return
        if 0 < self.policies.producers_max <= len(self._producers):
            raise ProducerBusy(f"Topic '{self._name}' reached max producers limit")
        if 0 < self.policies.producers_per_host_max <= self._count_of_host(producer):
            raise ProducerBusy(f"Topic '{self._name}' reached max same address producers limit")

    def _count_of_host(self, producer: Producer) -> int:
        host = host_of(producer.session.address)
        return sum(host_of(each.session.address) == host for each in self._producers)

    def step_before(self, following: Step) -> Step:
        """The gate's first step that is on; the last of them hands on to ``following``."""
        first = following
        if self.policies.requires_encryption:
            self._behind_encryption, first = first, self._take_encrypted
        rates = (self._rate, self._broker_rate)
        self._rates = tuple(each for each in rates if each is not None)
        if self._rates:
            self._behind_rate, first = first, self._take_counted
        return first

    def release(self) -> None:
        """The topic is closed: drop the following steps, which lead back to this gate."""
        self._behind_rate = self._behind_encryption = _take_nothing

    def _take_counted(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        """Count what is published, and have its client not read while that is too much."""
        self._behind_rate(producer, requests)
        messages = sum(count or 1 for count in map(messages_of, requests))
        size_bytes = sum(map(len, map(payload_of, requests)))
        now_s = self._clock.monotonic()
        for rate in self._rates:
            rate.take(messages, size_bytes, now_s)
            if rate.wait_s(now_s) > 0:
                self.pauses += 1
                producer.session.throttle(rate.wait_s)

    def _take_encrypted(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        """Refuse what is not encrypted."""
        _take_allowed(self._behind_encryption, producer, requests, _why_not_encrypted)


class DelayLimit(TopicPart):
    """Refuses messages whose delivery is delayed for longer than a topic's policies allow."""

    __slots__ = ("_following",)

    _following: Step

    @property
    def _limit_ms(self) -> int:
        delayed = self._topic.policies.delayed
        return delayed.delay_max_ms if delayed.enabled else 0

    def step_before(self, following: Step) -> Step:
        """While there is a limit, messages that keep it go on to ``following``."""
        if not self._limit_ms:
            return following
        self._following = following
        return self._take

    def _take(self, producer: Producer, requests: Sequence[AppendRequest]) -> None:
        why_refused = partial(_why_delayed, self._limit_ms)
        _take_allowed(self._following, producer, requests, why_refused)


def _why_not_encrypted(payload: bytes) -> BrokerError | None:
    return None if is_encrypted(payload) else InvalidRequest("Messages must be encrypted")


def _why_delayed(limit_ms: int, payload: bytes) -> BrokerError | None:
    if not is_delayed_longer(payload, limit_ms):
        return None
    return NotAllowed(f"Exceeds max allowed delivery delay of {limit_ms} milliseconds")


def _take_allowed(
    following: Step,
    producer: Producer,
    requests: Sequence[AppendRequest],
    why_refused: Callable[[bytes], BrokerError | None],
) -> None:
    """Hand on those of a run whose payloads are not refused; ``producer`` is told of the others.

    A producer that the first refusal ends (a replicator's) has nothing taken behind it: stored, it
    would make the refused one a repeat.
    """
    refusals = [why_refused(payload_of(request)) for request in requests]
    if not any(refusals):
        following(producer, requests)
        return
    for request, refusal in zip(one_by_one(requests), refusals, strict=True):
        reason = refusal
        if reason is None:
            try:
                following(producer, [request])
            except NotAllowed as error:  # it is not for others to begin the run again
                reason = error
        if reason is not None:
            producer.fail(request, reason)
        if producer.is_closed:
            return
