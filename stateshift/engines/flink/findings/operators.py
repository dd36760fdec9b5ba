"""Which operators of the images go along, which stay, and whether they fit together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from shlex import quote

from stateshift.engines.flink.image import kept_of
from stateshift.engines.flink.rewrite.choice import Choice
from stateshift.engines.flink.rewrite.move import Move
from stateshift.engines.flink.rewrite.redistribution import Redistribution
from stateshift.formats.flink.metadata import OperatorState
from stateshift.suggestion import BEHIND_COLON, did_you_mean
from stateshift.survey import Finding, Survey


def of_choice(surveys: Sequence[Survey], choice: Choice) -> Iterator[Finding]:
    """Yield what is wrong with the operators that are to go along."""
    yield from _of_names(surveys, choice)
    yield from _of_masters(surveys)
    for twice in choice.twice:
        yield Finding(
            "refuse",
            f"operator {twice} comes from two images: Flink would keep the last and lose the other "
            "without a word",
            hint='{"kind": "union", "operators": [...]} makes one of operators with keys of their '
            'own; else rename one of them: {"kind": "rename", "of": "the savepoint, or the id of '
            'its job", "operators": {"old": "new"}}',
        )
    if not any(taken.operators for taken in choice.taken):
        yield Finding("refuse", "no operator is left: nothing would be in the new savepoint")


def _of_names(surveys: Sequence[Survey], choice: Choice) -> Iterator[Finding]:
    """Yield what is wrong with the names in the spec."""
    uids = _uids(surveys)
    for name in choice.unknown:
        meant = did_you_mean(name, uids, BEHIND_COLON)
        yield Finding(
            "refuse",
            f"no operator has the uid or id {name!r}{meant}",
            hint=f"stateshift inspect {quote(surveys[0].location)} --uids {quote(name)} lists what "
            "is there",
        )
    for name in choice.alone:
        yield Finding(
            "refuse",
            f"operator {name!r} is in one image only: there is nothing that it could become one "
            "with",
            hint="leave it out of the union; where the other image has it under another name: "
            '{"kind": "rename", "of": "that savepoint", "operators": {"other": "name"}}',
        )
    for of in choice.elsewhere:
        yield Finding(
            "refuse",
            f"a change is of {of!r}, which is none of the images",
            hint="what it may be of: the location of a savepoint, or the id of the job it is taken "
            "of",
        )


def _uids(surveys: Sequence[Survey]) -> list[str]:
    uids: set[str] = set()
    for survey in surveys:
        for image in survey.images:
            uids.update(operator.uid for operator in image.operators if operator.uid)
    return sorted(uids)


def _of_masters(surveys: Sequence[Survey]) -> Iterator[Finding]:
    """Yield a refusal for each hook of a coordinator that has state in two images."""
    masters: Counter[str] = Counter()
    for survey in surveys:
        masters.update(kept_of(survey.images[0]).masters)
    for name, count in sorted(masters.items()):
        if count > 1:
            yield Finding(
                "refuse",
                f"the state of a coordinator's hook, {name!r}, is in two images: Flink would "
                "restore one",
                hint="move them one by one: such state belongs to a whole job, and cannot be left "
                "out",
            )


def of_redistribution(redistribution: Redistribution) -> Iterator[Finding]:
    """Yield why keyed state cannot be dealt anew, and a note on operators that become one."""
    for operator, what, why in redistribution.obstacles:
        yield Finding("refuse", f"operator {operator} {what}: {why.fact}", hint=why.hint)
    for rewritten in redistribution.united:
        yield Finding(
            "note",
            f"operator {rewritten.operator} is put together of {len(rewritten.sources)} images: "
            "that no key is in two of them is seen when it is written, and nothing is published if "
            "one is",
        )


def of_key_groups(move: Move) -> Iterator[Finding]:
    """Yield a note where operators have different max parallelisms, keyed state or none: Flink
    refuses a job that sets one which not all of them have.
    """
    if move.redistribution.max_parallelism is not None:
        return
    keyed = _max_parallelisms(filter(_has_keyed_state, move.operators))
    others = sorted(_max_parallelisms(move.operators) - keyed)
    if len(keyed) == 1 and others:
        (most,) = keyed
        yield Finding(
            "note",
            f"operators with keyed state have {most} key groups, others "
            f"{', '.join(map(str, others))}: a job that sets its max parallelism is refused by "
            "Flink",
            hint=f'{{"kind": "rescale", "max_parallelism": {most}}} gives all of them the same, '
            "and rewrites no state",
        )


def _has_keyed_state(operator: OperatorState) -> bool:
    return any(subtask.managed_keyed for subtask in operator.all_subtasks)


def _max_parallelisms(operators: Iterable[OperatorState]) -> set[int]:
    return {operator.max_parallelism for operator in operators}


def of_left(choice: Choice, others: frozenset[str] | None) -> Iterator[Finding]:
    """Yield a note on operators with state that stay behind, as the spec says; among jobs that
    divide a workflow, none may.
    """
    taken_by_others = others or frozenset()
    left = [operator for operator in choice.left if operator not in taken_by_others]
    if left and others is not None:
        yield Finding(
            "refuse",
            f"operators {', '.join(left)} have state, and none of the jobs that divide this "
            "workflow takes them along",
            waive="operators-stay",
            hint="add them to one of the jobs; or, where their state is no longer wanted, waive it",
        )
    elif left:
        yield Finding(
            "note",
            f"{len(left)} operators with state are left behind, as the spec says: "
            f"{', '.join(left)}",
        )
