"""Signed proposals: a job that insists on it takes changes only from whoever holds a key.

Keys are Ed25519, as files of PEM:

    openssl genpkey -algorithm ed25519 -out live.key
    openssl pkey -in live.key -pubout -out live.pub

Signed is the proposal, as it lies in the folder: which chains it changes, to which functions, by
the hashes of their code. Nobody without the key can ship code, or put code that was shipped before
elsewhere; whoever can write into the folder can still delete from it, abort and revert.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stateshift.errors import Complaint, Incompatible, PlanError, SpecError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PublicKey,
    )

INSTALL = "pip install 'stateshift[signed]'"


def sign(content: bytes, key_file: str) -> bytes:
    """Return the signature of a proposal by the private key in a file."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise PlanError("signing needs the library cryptography", hint=INSTALL) from None
    try:
        key = load_pem_private_key(Path(key_file).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise _refused(key_file, str(error)) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _refused(key_file, "not a key of Ed25519")
    return key.sign(content)


def _refused(key_file: str, why: str) -> SpecError:
    return SpecError(
        (Complaint("--key", f"{key_file} is no private key that can be used: {why}"),),
        hint="openssl genpkey -algorithm ed25519 -out live.key",
    )


def check(content: bytes, signature: bytes | None, trusted: str) -> None:
    """Refuse a proposal not signed by the holder of the trusted key, given as text."""
    if signature is None:
        raise Incompatible(
            "the change is not signed, and this job takes signed ones only",
            hint="propose it again with --key FILE",
        )
    key = check_key(trusted)
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise Incompatible(
            "the change is not signed with the key that this job trusts",
            hint="propose it again with the key that belongs to it",
        ) from None


def check_key(trusted: str) -> Ed25519PublicKey:
    """Return the public key that a job trusts, given as text; refuse what is none."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        fact = "the job takes signed changes only, and the library cryptography is not here"
        raise Incompatible(fact, hint=INSTALL) from None
    try:
        key = load_pem_public_key(trusted.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_public_key(str(error).splitlines()[0]) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _no_public_key("not a key of Ed25519")
    return key


def _no_public_key(why: str) -> SpecError:
    return SpecError(
        (Complaint("key", f"no public key that can be used: {why}"),),
        hint="openssl pkey -in live.key -pubout -out live.pub",
    )
