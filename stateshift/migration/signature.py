"""The signature of a saved plan: who has reviewed it, with which key, and until when it may begin.

    {"stateshift_plan": …, "spec": …, "plans": […],
     "signed": {"by": "alice@desk", "key": "9f…", "at": …, "expires": …, "signature": "c0…"}}

Signed is everything in the file but the signature itself, as canonical JSON. A name is what the
signer's machine calls its user: what counts is the key.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from stateshift import plain, signing
from stateshift.errors import PlanError, SpecError
from stateshift.migration.adapters import Adapters, invocation
from stateshift.terms import moment

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

# No signature of a live change begins like this, which the same key may make.
_BEFORE = b"stateshift plan\n"
_CLOCKS_APART_SECONDS = 300.0
_OTHERS_MAY_USE = 0o077
SIGN_CHANGE = (
    "sign the change with such a key: --key FILE; moves of bins and imports cannot be signed, and "
    "are not made under this rule"
)
REVIEW = "somebody who may, reviews and signs it: stateshift plan FILE --sign KEY -o SIGNED"


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature, as the file has it. It expires when a run may no longer begin by it."""

    by: str
    key: str
    at: float
    expires: float
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature, and the content of the file that has it."""

    header: Signature
    content: Mapping[str, object]

    @property
    def document(self) -> dict[str, object]:
        """The saved plan, as it was signed."""
        return {**self.content, "signed": asdict(self.header)}

    @property
    def claim(self) -> str:
        """The signer and the end of its time, for a person."""
        return f"by {self.header.by} until {moment(self.header.expires)}"

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that the key signs."""
        header = asdict(replace(self.header, signature=""))
        text = plain.canonical({**self.content, "signed": header})
        return _BEFORE + text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class ChangeSigner:
    """The private key, if any, with which a live change is signed as it is proposed."""

    key_file: str | None = None


def fault_of(
    signed: Signed | ChangeSigner | None, trusted: Mapping[str, Ed25519PublicKey], now: float
) -> str | None:
    """Return the reason for which a plan, or a live change, may not be begun now by those who trust
    these keys.
    """
    keys = {key.public_bytes_raw().hex(): key for key in trusted.values()}
    if isinstance(signed, ChangeSigner):
        if signed.key_file is None:
            return f"the change is not signed with a key of {', '.join(trusted)}"
        own = signing.private_key(signed.key_file).public_key().public_bytes_raw().hex()
        other = f"the change is signed with a key other than {', '.join(trusted)}"
        return None if own in keys else other
    if signed is None:
        return f"the plan is not signed, as a whole, with a key of {', '.join(trusted)}"
    header = signed.header
    if header.key not in keys:
        return f"{header.by} has signed the plan with a key other than {', '.join(trusted)}"
    signature = bytes.fromhex(header.signature)
    if not signing.has_signed(keys[header.key], signature, signed.signed_bytes):
        return "the plan is not what was signed: it, or its signature, was changed since"
    if header.at > now + _CLOCKS_APART_SECONDS:
        times = f"it was signed at {moment(header.at)}, and it is {moment(now)} here"
        return f"one of two clocks is wrong: {times}"
    if now >= header.expires:
        return f"its signature has expired: it is {signed.claim}, and it is {moment(now)}"
    return None


def sign_plan(
    document: Mapping[str, object], key_file: str, seconds: float, adapters: Adapters
) -> Signed:
    """Return the document of a saved plan as the user of this process signs it, with the private
    key in a file. It expires in so many seconds.

    Raises:
        SpecError: it is no such key, or others may use it.
    """
    key = signing.private_key(key_file, "--sign")
    mode = stat.S_IMODE(os.stat(key_file).st_mode)
    if mode & _OTHERS_MAY_USE:
        fact = f"others may read or write the key {key_file} (mode {mode:o})"
        raise SpecError.of("--sign", fact, hint=f"chmod 600 {key_file}")
    content = json.loads(json.dumps({**document, "signed": None}))
    by, now = adapters.by or invocation(adapters.host), adapters.clock.now()
    name, public = f"{by.user}@{by.host}", key.public_key().public_bytes_raw().hex()
    header = Signature(name, public, now, now + seconds)
    unsigned = Signed(header, content)
    made = replace(header, signature=key.sign(unsigned.signed_bytes).hex())
    return replace(unsigned, header=made)


def signature_in(content: Mapping[str, object]) -> Signed | None:
    """Return the signature that the content of a saved plan has; refuse what is none."""
    if content.get("signed") is None:
        return None
    try:
        header: Signature = plain.from_plain(Signature, content["signed"])
        bytes.fromhex(header.signature)
    except (plain.Misfit, ValueError) as error:
        fact = f"the signature of the saved plan is damaged: {error}"
        raise PlanError(fact, hint=f"delete its key 'signed'; then {REVIEW}") from error
    return Signed(header, content)
