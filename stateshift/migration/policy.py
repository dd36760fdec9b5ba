"""The policies of this process: files of rules, which a new run keeps, or it does nothing.

A run that goes on, or back, is not asked: whoever is on call has to get out of it at any time. Nor
is a failover, whether or not the files can be read: its standby was allowed, and its source is
lost.

A change of a live group is asked as a run is, but not what takes one back, or off.

Whoever begins a run may ask for a signature without a policy: `signed_by` of the adapters names the
public keys, as --signed-by does.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift import signing
from stateshift.errors import Incompatible, PolicyError, SpecError, UnsignedError
from stateshift.journal import Invocation
from stateshift.migration.adapters import Adapters, invocation
from stateshift.migration.proposal import Proposal
from stateshift.migration.signature import REVIEW, SIGN_CHANGE, ChangeSigner, Signed, fault_of
from stateshift.private_files import OTHERS_MAY_WRITE
from stateshift.specification import JobSpec
from stateshift.specification.policy import Rule, Wish, binding, read_policy
from stateshift.storage import locations
from stateshift.survey import refuse, warn

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

DIGITS_SHOWN = 12
SIGNED_BY = "--signed-by"


def keep_policies(
    jobs: Sequence[JobSpec], adapters: Adapters, signed: Signed | ChangeSigner | None = None
) -> Invocation | None:
    """Return the command that begins a run of these jobs, with the policies that it keeps, and the
    signature of its plan if one of them, or whoever begins it, asks for that.

    Raises:
        PolicyError: it breaks a rule, or a policy cannot be read; nothing is begun then.
    """
    judged = tuple(job for job in jobs if job.takes_over is None)
    by = adapters.by or invocation(adapters.host)
    wish, now = Wish(judged, by.user, by.sudo_user), adapters.clock.now()
    kept, wanted = list[str](), list[tuple[str, Rule]]()
    broken, unsigned = list[tuple[str, Rule, str]](), list[tuple[str, Rule, str]]()
    try:
        paths = adapters.policies() if judged else ()
    except (SpecError, OSError) as error:
        hint = getattr(error, "hint", None)
        raise PolicyError(f"nobody can tell which policies count: {error}", hint=hint) from error
    for path in paths:
        rules, digest = read_rules(path)
        kept.append(f"{os.path.basename(path)} {digest}")
        for rule, bound in binding(rules, wish):
            broken += [(path, rule, message) for message in rule.broken_by(bound, now)]
            wanted += [(path, rule)] if rule.signed_by else []
    if adapters.signed_by:
        wanted.append(("", Rule(SIGNED_BY, signed_by=adapters.signed_by)))
    for path, rule in wanted:
        fault = fault_of(signed, trusted_keys(rule, path), now)
        unsigned += [(path, rule, fault)] if fault else []
    faults = [*broken, *unsigned]
    if faults:
        path, rule, message = faults[0]
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        review = SIGN_CHANGE if isinstance(signed, ChangeSigner) else REVIEW
        hint = rule.say or (f"see the rule in {path}" if broken else review)
        who = f"rule {rule.name!r}" if path else SIGNED_BY
        fact = f"{who} forbids it: {message}{more}"
        only_waits = signed is None and not broken
        raise (UnsignedError if only_waits else PolicyError)(fact, hint=hint, rule=rule.name)
    if wanted and isinstance(signed, Signed):
        kept.append(f"plan signed {signed.claim}")
    return replace(by, policy=", ".join(kept)) if kept else adapters.by


def keep_policies_of_group(group: str, adapters: Adapters, key_file: str | None = None) -> None:
    """Refuse a live change of a group that breaks a rule: it is written where the group's folder
    is, and signed by the private key in a file.

    Raises:
        PolicyError: it breaks a rule, or a policy cannot be read.
    """
    location = locations.normal(group, os.getcwd())
    keep_policies([JobSpec("the group", location)], adapters, ChangeSigner(key_file))


def with_breach(proposal: Proposal, adapters: Adapters) -> Proposal:
    """Return a proposal that says, as a refusal, which rule it would break now; as a warning, that
    it waits for a signature. It is to be shown, not to be kept: the hour, and the rules, may be
    others once it is carried out.
    """
    try:
        keep_policies(proposal.jobs(), adapters, proposal.signed)
    except PolicyError as error:
        *others, last = proposal.plans
        waits = isinstance(error, UnsignedError)
        finding = (warn if waits else refuse)(error.fact, hint=error.hint)
        last = replace(last, findings=(*last.findings, finding))
        return replace(proposal, plans=(*others, last))
    return proposal


def read_rules(path: str) -> tuple[tuple[Rule, ...], str]:
    """Return the rules of a file, and the beginning of its SHA-256.

    Raises:
        PolicyError: it cannot be read, is not valid, or others may write to it.
    """
    text = _text_of(path, "policy")
    try:
        rules = read_policy(text)
    except SpecError as error:
        hint = f"correct the policy {path}; nothing was begun"
        raise PolicyError(f"the policy {path}: {error.fact}", hint=hint) from error
    return rules, hashlib.sha256(text.encode()).hexdigest()[:DIGITS_SHOWN]


def trusted_keys(rule: Rule, policy: str) -> dict[str, Ed25519PublicKey]:
    """Return the keys that may sign by a rule of a policy, each by the name of its file.

    Raises:
        PolicyError: one cannot be read, is none, or others may write to it.
    """
    keys = {}
    for name in rule.signed_by:
        text = _text_of(os.path.join(os.path.dirname(policy), name), "key")
        try:
            keys[name] = signing.public_key(text)
        except (Incompatible, SpecError) as error:
            rule_name = f"rule {rule.name!r}" if policy else SIGNED_BY
            fact = f"the key {name} of {rule_name}: {error.fact}"
            raise PolicyError(fact, hint=error.hint, rule=rule.name) from error
    return keys


def _text_of(path: str, what: str) -> str:
    """Return the text of a policy, or of a key that one trusts; refuse one others may write to."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"correct the {what} {path}; nothing was begun"
        raise PolicyError(f"the {what} {path} cannot be read: {error}", hint=hint) from error
    if mode & OTHERS_MAY_WRITE:
        fact = f"others may write to the {what} {path} (mode {mode:o})"
        raise PolicyError(fact, hint=f"chmod go-w {path}")
    return text
