"""Everything that a person should know before a Flink job moves: refusals, warnings, notes. Pure.

A refusal that can be waived names its waiver; with it in the job's `waive` it becomes a warning.
Findings are also made of the operators that go along or stay and whether they fit together, and of
the changes that a Flink image supports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from shlex import quote

from stateshift.engines.findings import (
    SHOWN_MAX,
    of_faster_storage,
    of_free_space,
    of_new_positions,
    of_standby,
)
from stateshift.engines.flink.findings.taking import (
    ASKABLE,
    of_fresh_checkpoint,
    of_live_jobs,
    of_parallelism,
    of_rounds,
    of_savepoints,
    of_taking,
)
from stateshift.engines.flink.findings.target import of_settings, of_versions
from stateshift.engines.flink.image import flink_facts, flink_image, id_of, is_readable, names_of
from stateshift.engines.flink.rewrite.choice import Choice
from stateshift.engines.flink.rewrite.move import (
    TRANSACTIONS,
    Move,
    Rewritten,
    pruned_operators,
)
from stateshift.engines.flink.rewrite.unkeyed import KEYED
from stateshift.formats.flink.java_data import fits_utf
from stateshift.formats.flink.key_groups import PARALLELISM_MAX
from stateshift.formats.flink.keyed_state import decode_header
from stateshift.formats.flink.serializers import Serializer
from stateshift.specification.job_relations import sharing
from stateshift.specification.model import JOB_STOPPED
from stateshift.specification.transform import (
    Convert,
    Drop,
    Evolve,
    Prune,
    Rename,
    Reposition,
    Rescale,
    Union,
    find_change,
)
from stateshift.storage import locations
from stateshift.suggestion import BEHIND_COLON, did_you_mean
from stateshift.survey import Finding, Image, Survey, note, refuse, warn


def of_sources(move: Move) -> Iterator[Finding]:
    """Report the source images; an image's own notes are left out."""
    for survey in move.surveys:
        yield from survey.findings
        if not survey.images and not survey.findings:
            fact = f"no Flink savepoint or checkpoint is at {survey.location}"
            hint = f"stateshift inspect {quote(survey.location)}"
            if survey.kind == "empty":
                fact = survey.absence or f"nothing is at {survey.location}"
                hint = locations.look_above(survey.location)
            yield refuse(fact, hint=hint)
        for image in survey.images:
            yield from (finding for finding in image.findings if finding.level != "note")
            yield from _of_image(move, survey, image)


def of_clusters(move: Move) -> Iterator[Finding]:
    """Yield the findings of both clusters, and a note where the target reports no progress."""
    ours, theirs = move.facts.source_cluster, move.facts.target_cluster
    may_run = ours is not None and ours.state in ("running", "queued", "unknown")
    takes_files = move.job.moves and not move.job.image_writers
    if ours is not None and may_run and takes_files and ours.kind not in ASKABLE:
        yield refuse(
            f"{ours.name} ({ours.kind}) is not asked to stop {move.job.name}: it would run on, "
            "beside the job that starts from this image",
            waive=JOB_STOPPED,
            hint="end the job with a savepoint (flink stop --savepointPath DIR JOB), and move that "
            'one without `--stop` ("source_cluster")',
        )
    for cluster in (move.facts.source_cluster, theirs):
        if cluster is not None:
            yield from cluster.findings
    if theirs is not None and theirs.kind not in ASKABLE:
        yield note(
            f"{theirs.name} ({theirs.kind}) is not asked how far the job comes: a run ends once it "
            "has taken the job"
        )


def _of_image(move: Move, survey: Survey, image: Image) -> Iterator[Finding]:
    for end in image.endpoints:
        transactions = end.details.get("transactions", ()) if end.role == "sink" else ()
        is_told = bool(move.facts.positions)  # beside the new positions
        if transactions and not is_told:
            yield note(
                f"{survey.place} names {len(transactions)} transactions of a Kafka sink that "
                "are prepared and not complete: the job completes them when it starts from it, at "
                "the brokers where they are"
            )
    kept = flink_image(image)
    drained, kind = (False, "") if kept is None else (kept.drained, kept.kind)
    if drained:
        yield warn(
            f"{survey.place} was drained: its windows and timers have fired as at the end of "
            "all input",
            hint="a job that goes on needs a savepoint that was taken without drain",
        )
    # The last word names the backend, also of "changelog over rocksdb".
    words = {(operator.provider or "").rpartition(" ")[2] for operator in image.operators}
    backends = sorted(words & {"rocksdb", "hashmap"})
    if backends:
        yield note(
            f"{survey.place} is in the format of the {' and '.join(backends)} backend, which "
            "the job that starts from it has to use: a canonical savepoint fits any"
        )
    if kind == "checkpoint":
        yield note(
            f"{survey.place} is a checkpoint of a job: what it did after that is done again "
            "where it starts here"
        )


def of_target(move: Move) -> Iterator[Finding]:
    """Refuse a target that is not empty, or a new savepoint without a place for it."""
    target, flink = move.facts.target, move.job.flink
    if move.job.target is not None:
        if target.kind != "empty":
            yield refuse(
                f"{target.location} is not empty ({len(target.files)} files): the new savepoint "
                "must not exist",
                hint=f"choose an empty place, or look: stateshift inspect {quote(target.location)}",
            )
        return
    what = "only some operators go along" if move.job.operators else None
    if flink is not None and (len(flink.job_ids) > 1 or len(flink.existing_savepoints) > 1):
        what = "several images become one"
    if what is not None:
        yield refuse(
            f"{what}, and there is no place for the new savepoint",
            hint='name it: "new_savepoint_path"',
        )


def of_choice(move: Move) -> Iterator[Finding]:
    """Refuse operators that cannot go along as the spec asks."""
    choice = move.choice
    yield from _of_names(move.surveys, choice)
    masters: Counter[str] = Counter()
    for survey in move.surveys:
        masters.update(flink_facts(survey.images[0]).masters)
    for name, count in sorted(masters.items()):
        if count > 1:
            yield refuse(
                f"the state of a coordinator's hook, {name!r}, is in two images: Flink would "
                "restore one",
                hint="move them one by one: such state belongs to a whole job, and cannot be left "
                "out",
            )
    for twice in choice.twice:
        yield refuse(
            f"operator {twice} comes from two images: Flink would keep the last and lose the other "
            "without a word",
            hint='{"kind": "union", "operators": [...]} makes one of operators with keys of their '
            'own; else rename one of them: {"kind": "rename", "of": "the savepoint, or the id of '
            'its job", "operators": {"old": "new"}}',
        )
    if not any(taken.operators for taken in choice.taken):
        yield refuse("no operator is left: nothing would be in the new savepoint")


def _of_names(surveys: Sequence[Survey], choice: Choice) -> Iterator[Finding]:
    uids: set[str] = set()
    for image in chain.from_iterable(survey.images for survey in surveys):
        uids.update(operator.uid for operator in image.operators if operator.uid)
    for name in choice.unknown:
        meant = did_you_mean(name, sorted(uids), BEHIND_COLON)
        yield refuse(
            f"no operator has the uid or id {name!r}{meant}",
            hint=f"stateshift inspect {quote(surveys[0].location)} --uids {quote(name)} lists what "
            "is there",
        )
    for name in choice.alone:
        yield refuse(
            f"operator {name!r} is in one image only: there is nothing that it could become one "
            "with",
            hint="leave it out of the union; where the other image has it under another name: "
            '{"kind": "rename", "of": "that savepoint", "operators": {"other": "name"}}',
        )
    for of in choice.elsewhere:
        yield refuse(
            f"a change is of {of!r}, which is none of the images",
            hint="what it may be of: the location of a savepoint, or the id of the job it is taken "
            "of",
        )


def of_redistribution(move: Move) -> Iterator[Finding]:
    """Refuse keyed state that cannot be redistributed, and note operators that become one."""
    for operator, what, why in move.redistribution.obstacles:
        yield refuse(f"operator {operator} {what}: {why.fact}", why.waive, why.hint)
    jars: dict[str, str] = {}
    for survey in move.surveys:
        for own in flink_facts(survey.images[0]).jars.values():
            jars.update(own)
    if jars:
        yield note(
            f"code of {', '.join(jars)} runs in a JVM on this machine, for this plan already: it "
            "hashes keys that are the job's own objects"
        )
    for rewritten in move.redistribution.rewritten:
        for number, operator in rewritten.sources:
            kept = flink_facts(move.surveys[number].images[0])
            obstacles = kept.apart if len(rewritten.sources) > 1 else kept.rigid
            waived = obstacles.get(operator)
            if waived is not None and waived.waive is not None:
                yield refuse(f"operator {operator}: {waived.fact}", waived.waive, waived.hint)
    for rewritten in move.redistribution.united:
        yield note(
            f"operator {rewritten.operator} is put together of {len(rewritten.sources)} images: "
            "that no key is in two of them is seen when it is written, and nothing is published if "
            "one is"
        )


def of_edits(move: Move) -> Iterator[Finding]:
    """Refuse changes of entries beside others of the same operators, and note what they leave."""
    changes = move.job.transform
    prune, evolve = find_change(changes, Prune), find_change(changes, Evolve)
    if prune is None and evolve is None:
        return
    if any(isinstance(change, Rescale | Union) for change in changes):
        kind = "evolve" if prune is None else "prune"
        fact = f"{kind!r} beside a rescale or a union"
        yield refuse(fact, hint="one after the other: two runs")
    if prune is not None and prune.operator is None:
        yield from _of_unnamed(move, prune)
    for rewritten in move.redistribution.rewritten:
        edit, operator = rewritten.edit, f"operator {rewritten.operator}"
        if edit is None:
            continue
        for state, asked in edit.evolve.items():
            if asked.get("drop"):
                dropped = ", ".join(asked["drop"])
                yield warn(f"{operator}, state {state!r}: what is in {dropped} is left behind")
        yield from _of_classes(move, rewritten)
        if edit.where is not None:
            yield note(
                f"{operator}: entries stay behind, and nothing else; a key that comes again begins "
                "with nothing, and a sink keeps what it has of it"
            )


def _of_unnamed(move: Move, prune: Prune) -> Iterator[Finding]:
    """Refuse a condition that might be of several operators, or of none."""
    names: dict[str, str] = {}
    for survey in move.surveys:
        names.update(names_of(survey.images[0]))
    keyed = [names[id_] for id_ in pruned_operators(prune, move.surveys)]
    if len(keyed) != 1:
        fact = f"`prune` is of one operator with keyed state, and there are {len(keyed)}"
        known = f": {', '.join(keyed)}" if keyed else ""
        yield refuse(fact + known, hint="name it: --operator UID")


def _of_classes(move: Move, rewritten: Rewritten) -> Iterator[Finding]:
    """Warn of a class that would have other fields in one state than in another, or in the keys: a
    job has one of that name.
    """
    (number, old), edit = rewritten.sources[0], rewritten.edit
    left: list[tuple[str, Serializer | None]] = []
    for head in flink_facts(move.surveys[number].images[0]).heads[old][KEYED]:
        assert edit is not None, "asked before"
        new = edit.open(head).head
        header = decode_header(new, len(new))
        left.append(("its keys", header.key))
        left += [(f"state {state.name!r}", state.value) for state in header.states]
    places: dict[str, dict[Serializer, str]] = {}
    while left:
        where, serializer = left.pop()
        if serializer is not None:
            left += [(where, inner) for inner in serializer.within()]
            if serializer.name == "PojoSerializer":
                places.setdefault(serializer.type or "", {})[serializer] = where
    for name, known in places.items():
        if len(known) > 1:
            shown = " and ".join(sorted(known.values()))
            yield warn(
                f"operator {rewritten.operator}: {name} has other fields in {shown}",
                hint="change all states of one class alike; keys stay as they are",
            )


def of_key_groups(move: Move) -> Iterator[Finding]:
    """Note differing max parallelisms: Flink refuses a job that sets one over all of them."""
    if move.redistribution.max_parallelism is not None:
        return
    keyed, every = set[int](), set[int]()
    for operator in move.operators:
        every.add(operator.max_parallelism)
        if any(subtask.managed_keyed for subtask in operator.all_subtasks):
            keyed.add(operator.max_parallelism)
    others = sorted(every - keyed)
    if len(keyed) == 1 and others:
        (most,) = keyed
        yield note(
            f"operators with keyed state have {most} key groups, others "
            f"{', '.join(map(str, others))}: a job that sets its max parallelism is refused by "
            "Flink",
            hint=f'{{"kind": "rescale", "max_parallelism": {most}}} gives all of them the same, '
            "and rewrites no state",
        )


def of_left(move: Move) -> Iterator[Finding]:
    """Note operators with state that stay behind; of jobs that divide a workflow, none may."""
    asked = move.spec.job(move.job.name)  # before its savepoints were taken
    others = sharing(move.spec, asked) if asked is not None else ()
    operators = chain.from_iterable(other.operators for other in others)
    taken_by_others = {id_of(operator.name) for operator in operators}
    left = [operator for operator in move.choice.left if operator not in taken_by_others]
    if left and others:
        yield refuse(
            f"operators {', '.join(left)} have state, and none of the jobs that divide this "
            "workflow takes them along",
            waive="operators-stay",
            hint="add them to one of the jobs; or, where their state is no longer wanted, waive it",
        )
    elif left:
        yield note(
            f"{len(left)} operators with state are left behind, as the spec says: {', '.join(left)}"
        )


# The kinds of `transform` for a Flink image.
CHANGES = (
    "drop",
    "rename",
    "merge",
    "convert",
    "rescale",
    "repair",
    "union",
    "reposition",
    "evolve",
    "prune",
)
_INSTEAD = {
    "repartition": (
        '{"kind": "rescale", "parallelism": 4, "max_parallelism": 128} is what repartitions '
        "keyed state"
    ),
    "split": '"operators": [...] of each job says which operators it takes',
    "compact": 'a savepoint has no chain of changes: "stop": {"format": "canonical"}',
}


def of_changes(move: Move) -> Iterator[Finding]:
    """Refuse what Flink images do not support, and each new uid of more than 65,535 bytes."""
    job = move.job
    for change in job.transform:
        if change.kind not in CHANGES:
            instead = f"{_INSTEAD[change.kind]}; " if change.kind in _INSTEAD else ""
            yield refuse(
                f"a Flink image cannot be changed by {change.kind!r}",
                hint=f'{instead}what can be asked for: {", ".join(CHANGES)}; and "operators" keeps '
                "some",
            )
    convert = find_change(job.transform, Convert)
    if convert is not None and convert != Convert(flink=convert.flink):
        yield refuse(
            "a Flink image is converted for a Flink", hint='{"kind": "convert", "flink": "1.20"}'
        )
    rescale = find_change(job.transform, Rescale)
    most = rescale.max_parallelism if rescale is not None else None
    if most is not None and most > PARALLELISM_MAX:
        yield refuse(
            f"a max parallelism of {most} is more than Flink takes",
            hint=f'"max_parallelism" up to {PARALLELISM_MAX}',
        )
    renames = [change for change in job.transform if isinstance(change, Rename)]
    if any(rename.sources for rename in renames):
        yield refuse(
            "of a Flink image, operators can be renamed", hint='"operators": {"old": "new"}'
        )
    for new in chain.from_iterable(rename.operators.values() for rename in renames):
        if not fits_utf(new):
            yield refuse(f"{new[:40]!r}... is longer than Flink can write a uid (65535 bytes)")
    if any(isinstance(change, Drop) and change.sources for change in job.transform):
        yield refuse(
            "of a Flink image, operators can be left out", hint='"operators": ["uid", ...]'
        )


def of_positions(move: Move) -> Iterator[Finding]:
    """Report new positions of sources, and the transactions of a sink that may have stayed."""
    changes = [change for change in move.job.transform if isinstance(change, Reposition)]
    is_united = find_change(move.job.transform, Union) is not None
    if changes and (is_united or len(move.surveys) > 1):
        yield refuse(
            "several images and new positions of their sources at once",
            hint="one after the other: two runs",
        )
    yield from of_new_positions(move.job, move.facts)
    if not changes or not is_readable(move.facts.source):
        return
    choice, image = move.choice, move.facts.source.images[0]
    for operator in move.new_offsets:
        if operator not in choice.taken[0].operators:
            name = names_of(image)[operator]
            yield refuse(f"source {name} is both repositioned and left out", hint="one of the two")
    for end in image.endpoints:
        ids = [each["id"] for each in end.details.get("transactions", ())]
        if not ids:
            continue
        shown = ", ".join(ids[:SHOWN_MAX]) + (", ..." if len(ids) > SHOWN_MAX else "")
        if TRANSACTIONS in move.job.waive:
            yield warn(
                f"sink {end.index}: {len(ids)} transactions are left out of the new image: what "
                f"the old job has not completed of them is lost (waived: {TRANSACTIONS}): {shown}"
            )
        else:
            yield warn(
                f"sink {end.index} has {len(ids)} transactions to complete: {shown}. The job does "
                "it when it starts, at the brokers that it then writes to; they are at those that "
                "it has written to so far",
                hint=f"where it writes to others from now on: --waive {TRANSACTIONS} leaves them "
                "out of the new image, if the old job has completed them or nobody needs them",
            )


def of_begun_work(move: Move) -> Iterator[Finding]:
    """Report what sinks had begun of a job that goes on beside its fork."""
    if not move.begun or not is_readable(move.facts.source):
        return
    names = names_of(move.facts.source.images[0])
    shown = ", ".join(names.get(operator, operator) for operator in move.begun)
    begun = f"{shown}: the files and transactions that were begun"
    if not move.leaves_begun_work:
        yield warn(
            f"{begun} are finished by the new job, and a job that goes on loses them: it fails, "
            "and starts again from its last checkpoint",
            hint=f"if that job has not ended: --waive {TRANSACTIONS} leaves them to it",
        )
    elif len(move.surveys) > 1:
        yield refuse(
            f"{begun} are the running jobs' to finish, and the new image is made of several",
            hint="a fork of each job leaves them out; then make one image of the forks",
        )
    else:
        yield warn(
            f"{begun} are the running job's to finish, and are left out of the new image",
            hint="the new job's sinks need another place; and a Kafka sink another "
            "transactionalIdPrefix: with the same one, each job aborts the transactions of the "
            "other",
        )


def of_storage(move: Move) -> Iterator[Finding]:
    """Report a target that cannot be written to, and a storage that could be faster."""
    yield from of_free_space(move.job, move.facts)
    yield from of_faster_storage(move.job, move.facts)


Findings = Callable[[Move], Iterable[Finding]]

FINDINGS_OF_START: tuple[Findings, ...] = (of_clusters,)
# Known before there is a savepoint, or another one than the last checkpoint.
FINDINGS_OF_SAVEPOINTS: tuple[Findings, ...] = (
    of_taking,
    of_savepoints,
    of_settings,
    of_target,
    of_changes,
    of_positions,
    of_clusters,
)
FINDINGS_OF_CHECKPOINT: tuple[Findings, ...] = (of_taking, of_rounds, of_settings, of_clusters)
FINDINGS: tuple[Findings, ...] = (
    of_sources,
    of_changes,
    of_positions,
    of_begun_work,
    of_target,
    of_choice,
    of_left,
    of_redistribution,
    of_edits,
    of_key_groups,
    of_versions,
    of_storage,
    of_standby,
    of_clusters,
    of_fresh_checkpoint,
    of_live_jobs,
    of_parallelism,
)
