"""The dispatch rates of one topic: the rate limiters that its subscriptions dispatch through.

``DispatchPolicies`` say what is limited. A topic without limits has none of this, except for a
reference to the broker's rate limiter, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga_broker.policies.dispatch import DISPATCH_FREELY, DispatchLimit, DispatchPolicies
from geminga_broker.subscriptions.dispatch.rate_limiter import LimitOf, Published, RateLimiter
from geminga_broker.subscriptions.subscription import Subscription
from geminga_runtime.clock import Clock


@dataclass(slots=True, eq=False)
class DispatchLimiters:
    """The rate limiters of one topic."""

    # The publish rate of the topic, on which relative limits depend.
    _published: Published
    _clock: Clock
    # Shared by all topics of the broker; None without such a limit.
    _broker_limiter: RateLimiter | None
    # One for all subscriptions of the topic, which queue for its tokens.
    _topic_limiter: RateLimiter | None = field(default=None, init=False)
    # One for each subscription, if subscriptions are limited.
    _own: dict[Subscription, RateLimiter] = field(
        default_factory=dict[Subscription, RateLimiter], init=False
    )
    # What the rate limiters above are made for.
    _policies: DispatchPolicies = field(default=DISPATCH_FREELY, init=False)

    def follow(self, policies: DispatchPolicies, subscriptions: list[Subscription]) -> None:
        """Apply ``policies`` to ``subscriptions``, which are all of the topic."""
        # By value: each change of any policy of the namespace comes here.
        if policies == self._policies:
            return
        # A new topic limiter must reach all subscriptions, also those whose own limit is the same.
        self._policies = policies
        self._topic_limiter = self._changed(self._topic_limiter, policies.topic, LimitOf.TOPIC)
        for subscription in subscriptions:
            self.limit(subscription)

    def limit(self, subscription: Subscription) -> None:
        """Let ``subscription`` dispatch through the rate limiters that hold now."""
        own = self._changed(
            self._own.pop(subscription, None), self._policies.subscription, LimitOf.SUBSCRIPTION
        )
        if own is not None:
            self._own[subscription] = own
        # The widest first: a dispatcher waits at the first that has no tokens left. The dispatcher
        # takes tokens of all of them for what it sends.
        limiters = [
            each for each in (self._broker_limiter, self._topic_limiter, own) if each is not None
        ]
        subscription.membership.pass_through(limiters, self._policies.counting)

    def forget(self, subscription: Subscription) -> None:
        """Drop the rate limiter of a subscription that ends, and let it leave the other queues."""
        # Closing calls its dispatcher in the next turn of the event loop, when that passes through
        # no limiter any more. Both: a dispatcher that stays in the queue of a limiter would be
        # called, and kept in memory, after its subscription has ended.
        own = self._own.pop(subscription, None)
        if own is not None:
            own.close()
        subscription.membership.pass_through([], self._policies.counting)

    def _changed(
        self, limiter: RateLimiter | None, limit: DispatchLimit, limit_of: LimitOf
    ) -> RateLimiter | None:
        """The rate limiter for ``limit``: ``limiter`` if it has that limit, else a new one, which
        begins with all its tokens. Dispatchers that wait at the old one are called."""
        if limiter is not None and limiter.limit == limit:
            return limiter
        # The old one is closed although its tokens are not used up. A new limit is a decision of an
        # operator, who expects it to hold at once.
        if limiter is not None:
            limiter.close()
        if limit.is_unlimited:
            return None
        return RateLimiter(limit, self._clock, self._published, limit_of=limit_of)

    def close(self) -> None:
        """Close all rate limiters: the topic is closed."""
        for limiter in (self._topic_limiter, *self._own.values()):
            if limiter is not None:
                limiter.close()
        self._topic_limiter = None
        self._own.clear()
