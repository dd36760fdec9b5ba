"""Signatures of changes to live chains and of saved plans. They count where a key is trusted.

Keys are Ed25519, as files of PEM:

    openssl genpkey -algorithm ed25519 -out live.key
    openssl pkey -in live.key -pubout -out live.pub

The library for it (the extra `signed`) is imported once a key is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stateshift.errors import Incompatible, PlanError, SpecError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

INSTALL = "pip install 'stateshift[signed]'"


def private_key(key_file: str, flag: str = "--key") -> Ed25519PrivateKey:
    """Return the private key in a file, which `flag` names; refuse what is none."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise PlanError("signing needs the library cryptography", hint=INSTALL) from None
    why = "not a key of Ed25519"
    try:
        key = load_pem_private_key(Path(key_file).read_bytes(), None)
        if isinstance(key, Ed25519PrivateKey):
            return key
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        why = str(error)
    raise SpecError.of(
        flag,
        f"{key_file} is no private key that can be used: {why}",
        hint="openssl genpkey -algorithm ed25519 -out live.key",
    )


def has_signed(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    """Whether a signature of exactly this content was made with the private key of `key`."""
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def public_key(trusted: str) -> Ed25519PublicKey:
    """Return the public key that somebody trusts, given as text; refuse what is none."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        fact = "a signature is asked for, and the library cryptography is not here"
        raise Incompatible(fact, hint=INSTALL) from None
    why = "not a key of Ed25519"
    try:
        key = load_pem_public_key(trusted.encode())
        if isinstance(key, Ed25519PublicKey):
            return key
    except (ValueError, UnsupportedAlgorithm) as error:
        why = str(error).splitlines()[0]
    hint = "openssl pkey -in live.key -pubout -out live.pub"
    raise SpecError.of("key", f"no public key that can be used: {why}", hint=hint)
