"""What a person should know before a Flink job moves: refusals, warnings, notes. Pure.

A refusal that can be waived names its waiver; with it in the job's `waive` it becomes a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from shlex import quote

from stateshift.engines.flink.changes import asked_version
from stateshift.engines.flink.image import flink_image, kept_of, metadata_of
from stateshift.engines.flink.rewrite.choice import Choice
from stateshift.engines.flink.rewrite.move import Move
from stateshift.engines.flink.rewrite.redistribution import Redistribution
from stateshift.engines.free_space import of_free_space
from stateshift.formats.flink.java_data import fits_utf
from stateshift.formats.flink.metadata import PROPERTIES_FROM, OperatorState
from stateshift.formats.flink.versions import WRITTEN_BY, flink_version, newest_for
from stateshift.specification import JobSpec
from stateshift.suggestion import BEHIND_COLON, did_you_mean
from stateshift.survey import ClusterFacts, Facts, Finding, Image, Survey

KRYO = "KryoSerializerSnapshot"
# The clusters that can be asked for savepoints, and for a job's progress since.
ASKABLE = ("flink_rest", "memory")
LISTED_MAX = 8  # jobs that a hint names
# What `transform` may ask of a Flink image.
CHANGES = ("drop", "rename", "merge", "convert", "rescale", "repair", "union")
_INSTEAD = {
    "repartition": (
        '{"kind": "rescale", "parallelism": 4, "max_parallelism": 128} is what repartitions '
        "keyed state"
    ),
    "split": '"operators": [...] of each job says which operators it takes',
    "compact": 'a savepoint has no chain of changes: "stop": {"format": "canonical"}',
}


def waived(finding: Finding, names: tuple[str, ...]) -> Finding:
    """Return the finding, as a warning where the job waives it."""
    if finding.level != "refuse" or finding.waive not in names:
        return finding
    message = f"{finding.message} (waived: {finding.waive})"
    return replace(finding, level="warn", message=message, hint=None)


def of_sources(surveys: Sequence[Survey]) -> Iterator[Finding]:
    """Yield what the source images are refused or warned for; an image's own notes are left out."""
    for survey in surveys:
        yield from survey.findings
        if not survey.images:
            yield _no_image(survey)
        for image in survey.images:
            yield from (finding for finding in image.findings if finding.level != "note")
            yield from _of_image(survey, image)


def _no_image(survey: Survey) -> Finding:
    what = "nothing is" if survey.kind == "empty" else "no Flink savepoint or checkpoint is"
    return Finding(
        "refuse",
        f"{what} at {survey.location}",
        hint=f"stateshift inspect {quote(survey.location)}",
    )


def of_move(
    job: JobSpec, facts: Facts, move: Move, others: frozenset[str] | None
) -> tuple[Finding, ...]:
    """Return everything; `others` are the operators of jobs that divide the source with this one;
    None where it is not divided.
    """
    findings = (
        *of_sources(move.surveys),
        *of_changes(job),
        *of_target(job, facts),
        *_of_choice(move.surveys, move.choice),
        *_of_left(move.choice, others),
        *_of_redistribution(move.redistribution),
        *_of_key_groups(move),
        *_of_versions(job, facts, move.surveys),
        *of_free_space(job, facts),
        *of_clusters(facts),
    )
    return tuple(waived(finding, job.waive) for finding in findings)


def of_clusters(facts: Facts) -> Iterator[Finding]:
    """Yield the findings of both clusters, and a note where the target reports no progress."""
    for cluster in (facts.source_cluster, facts.target_cluster):
        if cluster is not None:
            yield from cluster.findings
    theirs = facts.target_cluster
    if theirs is not None and theirs.kind not in ASKABLE:
        yield Finding(
            "note",
            f"{theirs.name} ({theirs.kind}) is not asked how far the job comes: a run ends once it "
            "has taken the job",
        )


def of_taking(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield what is known before savepoints are taken of running jobs."""
    cluster = facts.source_cluster
    if cluster is not None:
        yield from _of_asking(job, cluster)
    written = _version_written(job, cluster)
    if facts.target_cluster is not None and written is not None:
        yield from _of_reading(facts.target_cluster, written)
    if job.mode == "warm":
        yield Finding(
            "warn",
            "what the job does since its last checkpoint is done again, as after a failure: a sink "
            "that is not transactional gets it twice",
            hint='"mode": "move" ends it with a savepoint, and nothing is done after that',
        )
    elif job.target is not None:
        yield Finding(
            "note",
            "what is copied, and what is rewritten, is planned from the savepoints, once they are "
            "taken",
        )
    yield from _of_stopping(job)


def _of_asking(job: JobSpec, cluster: ClusterFacts) -> Iterator[Finding]:
    """Yield why a cluster cannot take the savepoints."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    if cluster.kind not in ASKABLE:
        yield Finding(
            "refuse",
            f"{cluster.name} ({cluster.kind}) cannot be asked for a savepoint",
            hint='give it "kind": "flink_rest" and its "url"; or take the savepoint yourself, and '
            'name it in "existing_savepoint_paths"',
        )
    elif cluster.state not in ("running", "unknown"):
        what = "no savepoint can be taken" if job.mode != "warm" else "it cannot be followed"
        yield Finding(
            "refuse",
            f"{', '.join(job.flink.job_ids)} on {cluster.name}: {cluster.state}, and {what}",
            hint=f"{_running_there(cluster)}; or name the savepoint it ended with in "
            '"existing_savepoint_paths"',
        )


def _of_stopping(job: JobSpec) -> Iterator[Finding]:
    """Yield what becomes of the old job behind its savepoint."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    if job.flink.cancel_job:
        yield Finding(
            "warn",
            "records that the job reads between its savepoint and its cancellation are done twice, "
            "or lost where its source cannot be read again",
            hint='leave out "cancel_job": the job then ends with its savepoint, and does nothing '
            "after it",
        )
    elif job.flink.cancel_job is False or job.mode == "fork":
        yield Finding(
            "warn",
            "the old job goes on: what it does after its savepoint is not in the new one, and both "
            "write",
            hint='leave out "cancel_job" to stop it with its savepoint',
        )
    if job.stop.get("drain"):
        yield Finding(
            "warn",
            "a drained job fires all its windows and timers, as at the end of all input: it is not "
            "meant to go on",
        )


def _version_written(job: JobSpec, cluster: ClusterFacts | None) -> int | None:
    """Return the newest version that the metadata may have: as asked for, or as the cluster writes
    it; None if neither tells.
    """
    asked = newest_for(asked_version(job))
    if asked is not None or cluster is None:
        return asked
    return newest_for(cluster.version)


def _running_there(cluster: ClusterFacts) -> str:
    """Return which jobs could be meant instead."""
    ids: dict[str, None] = {}  # each once, in their order
    for savable in cluster.savable:
        ids.update(dict.fromkeys(savable.listed))
    if not ids:
        return f"no job runs on {cluster.name}"
    return f'jobs that run there, for "job_ids": {_first_of([*ids])}'


def _first_of(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:LISTED_MAX])
    more = len(ids) - LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _of_image(survey: Survey, image: Image) -> Iterator[Finding]:
    kept = flink_image(image)
    if kept is not None and kept.drained:
        yield Finding(
            "warn",
            f"{survey.location} was drained: its windows and timers have fired as at the end of "
            "all input",
            hint="a job that goes on needs a savepoint that was taken without drain",
        )
    backends = _backends(image)
    if backends:
        yield Finding(
            "note",
            f"{survey.location} is in the format of the {' and '.join(backends)} backend, which "
            "the job that starts from it has to use: a canonical savepoint fits any",
        )
    if kept is not None and kept.kind == "checkpoint":
        yield Finding(
            "note",
            f"{survey.location} is a checkpoint of a job: what it did after that is done again "
            "where it starts here",
        )


def _backends(image: Image) -> list[str]:
    """Return the backends in whose own formats the state is."""
    names: set[str] = set()
    for operator in image.operators:
        if operator.provider:
            names.add(operator.provider.rpartition(" ")[2])  # also of "changelog over rocksdb"
    return sorted(names & {"rocksdb", "hashmap"})


def of_changes(job: JobSpec) -> Iterator[Finding]:
    """Yield a refusal for each change, or option of one, that Flink images do not support, and for
    each new uid of more than 65,535 bytes.
    """
    for change in job.transform:
        if change["kind"] not in CHANGES:
            instead = f"{_INSTEAD[change['kind']]}; " if change["kind"] in _INSTEAD else ""
            yield Finding(
                "refuse",
                f"a Flink image cannot be changed by {change['kind']!r}",
                hint=f'{instead}what can be asked for: {", ".join(CHANGES)}; and "operators" keeps '
                "some",
            )
    if _only(job, "convert", "flink"):
        yield Finding(
            "refuse",
            "a Flink image is converted for a Flink",
            hint='{"kind": "convert", "flink": "1.20"}',
        )
    if _only(job, "rename", "operators", "of"):
        yield Finding(
            "refuse",
            "of a Flink image, operators can be renamed",
            hint='"operators": {"old": "new"}',
        )
    for new in _new_names(job):
        if not fits_utf(new):
            yield Finding(
                "refuse", f"{new[:40]!r}... is longer than Flink can write a uid (65535 bytes)"
            )
    if _only(job, "drop", "operators", "of"):
        yield Finding(
            "refuse",
            "of a Flink image, operators can be left out",
            hint='"operators": ["uid", ...]',
        )


def _new_names(job: JobSpec) -> Iterator[str]:
    for change in job.transform:
        if change["kind"] == "rename":
            yield from dict(change.get("operators", {})).values()


def _only(job: JobSpec, kind: str, *keys: str) -> bool:
    """Whether a change asks for something that is another engine's."""
    changes = [change for change in job.transform if change["kind"] == kind]
    return any(change.keys() - {"kind", *keys} for change in changes)


def of_target(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield a refusal where the target is not empty, or where the change needs a new savepoint and
    the spec names no place for it.
    """
    target = facts.target
    if job.target is None:
        yield from _of_no_target(job)
    elif target.kind != "empty":
        yield Finding(
            "refuse",
            f"{target.location} is not empty ({len(target.files)} files): the new savepoint must "
            "not exist",
            hint=f"choose an empty place, or look: stateshift inspect {quote(target.location)}",
        )


def _of_no_target(job: JobSpec) -> Iterator[Finding]:
    """Yield why there must be a place for a new savepoint."""
    if _has_several_sources(job):
        what = "several images become one"
    elif job.operators:
        what = "only some operators go along"
    else:
        return
    yield Finding(
        "refuse",
        f"{what}, and there is no place for the new savepoint",
        hint='name it: "new_savepoint_path"',
    )


def _has_several_sources(job: JobSpec) -> bool:
    if job.flink is None:
        return False
    return len(job.flink.job_ids) > 1 or len(job.flink.existing_savepoints) > 1


def _of_choice(surveys: Sequence[Survey], choice: Choice) -> Iterator[Finding]:
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


def _of_redistribution(redistribution: Redistribution) -> Iterator[Finding]:
    for operator, what, why in redistribution.obstacles:
        yield Finding("refuse", f"operator {operator} {what}: {why.fact}", hint=why.hint)
    for rewritten in redistribution.united:
        yield Finding(
            "note",
            f"operator {rewritten.operator} is put together of {len(rewritten.sources)} images: "
            "that no key is in two of them is seen when it is written, and nothing is published if "
            "one is",
        )


def _of_key_groups(move: Move) -> Iterator[Finding]:
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


def _of_left(choice: Choice, others: frozenset[str] | None) -> Iterator[Finding]:
    """Yield a note on operators with state that stay behind, as the spec says; among jobs that
    divide a workflow, none may.
    """
    left = _left_by_all(choice, others)
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


def _left_by_all(choice: Choice, others: frozenset[str] | None) -> list[str]:
    """Return the operators that stay behind, and that no other job takes along either."""
    taken_by_others = others or frozenset()
    return [operator for operator in choice.left if operator not in taken_by_others]


def _of_versions(job: JobSpec, facts: Facts, surveys: Sequence[Survey]) -> Iterator[Finding]:
    """Yield why a Flink may not read what it gets: it reads older metadata, no newer (IF-18)."""
    images = _readable(surveys)
    if not images:
        return
    asked = asked_version(job)
    if asked is not None and newest_for(asked) is None:
        yield Finding("refuse", f"{asked!r} is no version of Flink", hint='such as "1.20"')
        return
    newest = max(metadata_of(image).version for image in images)
    version = newest_for(asked) or newest
    has_properties = any(metadata_of(image).properties for image in images)
    if version >= PROPERTIES_FROM and not has_properties:
        yield Finding(
            "refuse",
            f"metadata of version {newest} cannot become version {version}: it does not say of "
            "what kind it is",
            hint="leave out the conversion: every newer Flink reads it as it is",
        )
    if facts.target_cluster is not None:
        yield from _of_reading(facts.target_cluster, version)
        yield from _of_kryo(images, facts.target_cluster.version or "")


def _readable(surveys: Sequence[Survey]) -> list[Image]:
    """Return the images that have metadata."""
    images: list[Image] = []
    for survey in surveys:
        images.extend(image for image in survey.images if flink_image(image) is not None)
    return images


def _of_reading(theirs: ClusterFacts, version: int) -> Iterator[Finding]:
    """Yield why a cluster's Flink may not read metadata of a version."""
    reads = newest_for(theirs.version)
    if reads is None:
        yield Finding(
            "note",
            f"{theirs.name} does not say which Flink it runs: whether it reads metadata of version "
            f"{version} ({WRITTEN_BY[version]}) is not known",
        )
    elif reads < version:
        yield Finding(
            "refuse",
            f"{theirs.name} runs Flink {theirs.version}, which reads metadata up to version "
            f"{reads}; this is version {version} ({WRITTEN_BY[version]})",
            hint=f'"transform": [{{"kind": "convert", "flink": "{theirs.version}"}}] writes it for '
            "that Flink",
        )


def _kryo_users(image: Image) -> list[str]:
    """Return the ids of the operators that have a state whose serializer is Kryo."""
    return [
        operator.id
        for operator in image.operators
        if KRYO in operator.details.get("serializers", ())
    ]


def _of_kryo(images: Sequence[Image], version: str) -> Iterator[Finding]:
    """Yield a refusal for state that another Kryo wrote: Flink 1.x has Kryo 2, 2.x has Kryo 5."""
    theirs = flink_version(version)
    if theirs is None:
        return
    for image in images:
        written = metadata_of(image).version
        has_kryo_2 = written < 5
        reads_kryo_2 = theirs[0] < 2
        users = _kryo_users(image)
        if users and has_kryo_2 != reads_kryo_2:
            yield Finding(
                "refuse",
                f"operators {', '.join(users)} have state that Kryo wrote, and Flink {version} has "
                f"another Kryo than {WRITTEN_BY[written]}: what it reads may be wrong",
                waive="kryo",
                hint="give that state types that Flink serializes itself; or, where a test has "
                'shown it, "waive": ["kryo"]',
            )
