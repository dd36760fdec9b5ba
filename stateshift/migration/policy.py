"""The policies of this process: files of rules, which a new run keeps, or it does nothing.

A run that goes on, or back, is not asked: whoever is on call has to get out of it at any time. Nor
is a failover, whether or not the files can be read: its standby was allowed, and its source is
lost.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import replace

from stateshift.errors import PolicyError, SpecError
from stateshift.journal import Invocation
from stateshift.migration.adapters import Adapters, invocation
from stateshift.migration.proposal import Proposal
from stateshift.specification import JobSpec
from stateshift.specification.policy import Rule, Wish, breaches, read_policy
from stateshift.survey import refuse

DIGITS_SHOWN = 12
OTHERS_MAY_WRITE = 0o022


def keep_policies(jobs: Sequence[JobSpec], adapters: Adapters) -> Invocation | None:
    """Return the command that begins a run of these jobs, with the policies that it keeps.

    Raises:
        PolicyError: it breaks a rule, or a policy cannot be read; nothing is begun then.
    """
    judged = tuple(job for job in jobs if job.takes_over is None)
    by = adapters.by or invocation(adapters.host)
    wish = Wish(judged, by.user, by.sudo_user, adapters.clock.now())
    kept, broken = list[str](), list[tuple[str, Rule, str]]()
    try:
        paths = adapters.policies() if judged else ()
    except (SpecError, OSError) as error:
        hint = getattr(error, "hint", None)
        raise PolicyError(f"nobody can tell which policies count: {error}", hint=hint) from error
    for path in paths:
        rules, digest = read_rules(path)
        kept.append(f"{os.path.basename(path)} {digest}")
        broken += [(path, rule, message) for rule, message in breaches(rules, wish)]
    if broken:
        path, rule, message = broken[0]
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        hint = rule.say or f"see the rule in {path}"
        fact = f"rule {rule.name!r} forbids it: {message}{more}"
        raise PolicyError(fact, hint=hint, rule=rule.name)
    return replace(by, policy=", ".join(kept)) if kept else adapters.by


def with_breach(proposal: Proposal, adapters: Adapters) -> Proposal:
    """Return a proposal that says, as a refusal, which rule it would break now. It is to be shown,
    not to be kept: the hour, and the rules, may be others once it is carried out.
    """
    try:
        keep_policies(proposal.jobs(), adapters)
    except PolicyError as error:
        *others, last = proposal.plans
        finding = refuse(error.fact, hint=error.hint)
        last = replace(last, findings=(*last.findings, finding))
        return replace(proposal, plans=(*others, last))
    return proposal


def read_rules(path: str) -> tuple[tuple[Rule, ...], str]:
    """Return the rules of a file, and the beginning of its SHA-256.

    Raises:
        PolicyError: it cannot be read, is not valid, or others may write to it.
    """
    hint = f"correct the policy {path}; nothing was begun"
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read()
        rules = read_policy(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        fact = f"the policy {path} cannot be read: {error}"
        raise PolicyError(fact, hint=hint) from error
    except SpecError as error:
        raise PolicyError(f"the policy {path}: {error.fact}", hint=hint) from error
    if mode & OTHERS_MAY_WRITE:
        fact = f"others may write to the policy {path} (mode {stat.S_IMODE(mode):o})"
        raise PolicyError(fact, hint=f"chmod go-w {path}")
    return rules, hashlib.sha256(content).hexdigest()[:DIGITS_SHOWN]
