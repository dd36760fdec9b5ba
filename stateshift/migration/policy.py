"""The policy of this process: a file of rules, which a new run has to keep before it does anything.

A run that goes on, or back, is not asked: whoever is on call has to get out of it at any time.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

from stateshift.errors import PlanError, SpecError
from stateshift.journal import Invocation
from stateshift.migration.adapters import Adapters, invocation
from stateshift.migration.proposal import Proposal
from stateshift.report import COPYING
from stateshift.specification.policy import Wish, breaches, read_policy

DIGITS_SHOWN = 12


def keep_policy(proposal: Proposal, adapters: Adapters) -> Invocation | None:
    """Return the command that begins a run, with the policy that it keeps.

    Raises:
        PlanError: it breaks a rule.
        SpecError: the policy cannot be read, or is not valid; nothing is begun then.
    """
    if adapters.policy is None:
        return adapters.by
    by = adapters.by or invocation(adapters.host)
    try:
        with open(adapters.policy, "rb") as file:
            content = file.read()
        rules = read_policy(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        fact = f"the policy {adapters.policy} cannot be read: {error}"
        raise SpecError.of("STATESHIFT_POLICY", fact) from error
    except SpecError as error:
        error.where["path"] = adapters.policy
        error.hint = f"correct the policy {adapters.policy}; nothing was begun"
        raise
    sizes: dict[str, int] = {}
    for plan in proposal.plans:
        written = sum(phase.bytes for phase in plan.phases if phase.name in COPYING)
        sizes[plan.job] = max(sizes.get(plan.job, 0), written)
    jobs = tuple(proposal.jobs())
    wish = Wish(proposal.spec, jobs, by.user, adapters.clock.now(), sizes)
    broken = list(breaches(rules, wish))
    if broken:
        rule, message = broken[0]
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        hint = rule.say or f"see the rule in {adapters.policy}"
        fact = f"rule {rule.name!r} forbids it: {message}{more}"
        raise PlanError(fact, hint=hint, rule=rule.name)
    digest = hashlib.sha256(content).hexdigest()[:DIGITS_SHOWN]
    return replace(by, policy=f"{os.path.basename(adapters.policy)} {digest}")
