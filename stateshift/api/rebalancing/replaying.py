"""A decision, made again from what it was made from: nothing is asked, and nothing is moved."""

from __future__ import annotations

import json

from stateshift.advise.evaluate.inputs import refuse_odd_numbers
from stateshift.advise.rebalance.decision import decide
from stateshift.advise.rebalance.memory import Memory
from stateshift.advise.rebalance.outcome import Rebalance
from stateshift.advise.rebalance.policy import Policy
from stateshift.advise.rebalance.situation import Situation
from stateshift.api.local_files import text_of
from stateshift.errors import Complaint, SpecError
from stateshift.plain import Misfit, from_plain

_HINT = "name a file of FOLDER/decisions, or what `stateshift rebalance --json` has printed"


def replay_decision(path: str) -> Rebalance:
    """Return the decision that the inputs in a file lead to.

    Raises:
        SpecError: the file cannot be read, or holds no such inputs.
    """
    text = text_of(path, _HINT, path)
    try:
        plain = json.loads(text)
        inputs = plain.get("inputs") or plain
        refuse_odd_numbers(inputs)
        situation = from_plain(Situation, inputs["situation"], "/situation")
        policy = from_plain(Policy, inputs["policy"], "/policy")
        memory = from_plain(Memory, inputs["memory"], "/memory")
        _check(situation, policy)
    except (Misfit, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fact = f"no decision with its inputs: {error}"
        raise SpecError((Complaint(path, fact),), hint=_HINT) from error
    used = {name: inputs[name] for name in ("situation", "policy", "memory")}
    return Rebalance(decide(situation, policy, memory), file=path, inputs=used)


def _check(situation: Situation, policy: Policy) -> None:
    """Refuse what no run could have met, and nothing can be computed with."""
    names = [cluster.name for cluster in situation.clusters]
    if len(set(names)) < len(names) or not names:
        raise Misfit("/situation/clusters", "expected clusters, each once")
    for number, cluster in enumerate(situation.clusters):
        if cluster.capacity <= 0 and not cluster.unknown:
            raise Misfit(f"/situation/clusters/{number}/capacity", "expected a number above 0")
        if cluster.other_load < 0:
            raise Misfit(f"/situation/clusters/{number}/other_load", "expected a number from 0 on")
    for number, job in enumerate(situation.jobs):
        if job.cluster not in names:
            raise Misfit(f"/situation/jobs/{number}/cluster", "expected one of the clusters")
        if min(job.load or 0.0, job.rate, job.bytes, job.downtime_seconds) < 0:
            raise Misfit(f"/situation/jobs/{number}", "expected numbers from 0 on")
    if len({job.name for job in situation.jobs}) < len(situation.jobs):
        raise Misfit("/situation/jobs", "expected jobs, each once")
    if policy.load_max <= 0 or policy.runs < 1:
        raise Misfit("/policy", "expected a load above 0, and a number of runs from 1 on")
