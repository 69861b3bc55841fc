"""Proves that each error of the protocol has its class, and which of them may pass."""

from __future__ import annotations

import pytest

from geminga import BrokerRefused, errors
from geminga.errors import refusal
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import ServerError


@pytest.mark.parametrize("name", ServerError.keys())
def test_every_error_of_the_protocol_is_a_refusal(name: str) -> None:
    error = refusal(ServerError.Value(name), "because")
    assert isinstance(error, BrokerRefused)
    assert (error.server_error, error.message) == (name, "because")
    assert str(error) == f"{name}: because"


def test_some_refusals_may_pass_and_some_are_for_good() -> None:
    assert refusal(api.ServiceNotReady, "").retry
    assert refusal(api.MetadataError, "").retry
    # Of an acknowledgement that was on its way while the broker let go of the consumer.
    assert refusal(api.ConsumerNotFound, "").retry
    assert not refusal(api.AuthorizationError, "").retry
    assert refusal(api.ProducerFenced, "").is_final
    assert not refusal(api.ProducerBusy, "").is_final


def test_every_class_says_what_it_is() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = [kind for kind in kinds if issubclass(kind, errors.ClientError)]
    assert len(ours) > 20
    assert all(kind.__doc__ for kind in ours)
