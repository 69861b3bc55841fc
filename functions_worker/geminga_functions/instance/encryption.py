"""The keys of functions that encrypt their results, or consume encrypted messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import geminga
from geminga_functions.errors import FunctionNotLoaded
from geminga_functions.instance.code_loader import Loader
from geminga_protocol.functions.functions_pb2 import CryptoSpec

# The official client's key reader, which upstream's instance creates with the paths of two files.
OFFICIAL = "pulsar.CryptoKeyReader"


class KeyFiles:
    """A key reader with one public and one private key, PEM files, for keys of any name."""

    def __init__(self, public_key_path: str, private_key_path: str) -> None:
        # Read once, when the instance starts: a missing file then fails the start, not a message.
        self._public = Path(public_key_path).read_bytes()
        self._private = Path(private_key_path).read_bytes()

    def public_key(self, _: str, /) -> geminga.PublicKey:
        """As ``PublicKeyReader.public_key``."""
        return geminga.PublicKey(self._public)

    def private_key(self, _name: str, _metadata: Mapping[str, str], /) -> bytes:
        """As ``PrivateKeyReader.private_key``."""
        return self._private


def encryption_of(loader: Loader, spec: CryptoSpec) -> geminga.Encryption:
    """The encryption of a function's results. Raises ``FunctionNotLoaded``."""
    names = list(spec.producerEncryptionKeyName)
    if not names:
        raise FunctionNotLoaded("results are to be encrypted, and no encryption key is named")
    return geminga.Encryption(names, _keys_of(loader, spec, "public_key"))


def decryption_of(loader: Loader, spec: CryptoSpec) -> geminga.ConsumerOptions:
    """The options of a consumer of encrypted messages. Raises ``FunctionNotLoaded``."""
    # FAIL, DISCARD or CONSUME; SEND is for producers, and refused with the config.
    action = CryptoSpec.FailureAction.Name(spec.consumerCryptoFailureAction).lower()
    return {
        "decryption": _keys_of(loader, spec, "private_key"),
        "crypto_failure_action": action,  # type: ignore[typeddict-item]  # the names are the same
    }


def _keys_of(loader: Loader, spec: CryptoSpec, method: str) -> Any:  # noqa: ANN401 - the user's
    """Create the key reader that ``spec`` names. Raises ``FunctionNotLoaded``."""
    name = spec.cryptoKeyReaderClassName
    # The official name needs no official client: the environment of the function may lack it.
    made_by = KeyFiles if name == OFFICIAL else loader.find(name)
    try:
        # The settings are its arguments: for the official reader the paths of the two files.
        keys = made_by(**json.loads(spec.cryptoKeyReaderConfig or "{}"))
    except Exception as error:
        raise FunctionNotLoaded(f"the key reader {name} cannot be made") from error
    # At the start, not with the first message: a reader for consumers alone cannot encrypt.
    if not callable(getattr(keys, method, None)):
        raise FunctionNotLoaded(f"the key reader {name} has no method {method!r}")
    return keys
