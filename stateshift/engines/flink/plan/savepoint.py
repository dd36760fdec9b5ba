"""In which format a savepoint is taken, and with which parallelism its job can go on. Pure.

A canonical savepoint fits any state backend, and can be rescaled by us. Not every job can write
one; a native one does where nothing needs the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stateshift.engines.flink.image import metadata_of
from stateshift.engines.flink.rewrite.choice import Choice, Dealing
from stateshift.formats.flink.metadata import OperatorState
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Savable, Survey

REWRITE_STATE = ("rescale", "union")  # changes that read keyed state, key by key
_BACKENDS = ("state.backend.type", "state.backend")
_KINDS = ("hashmap", "rocksdb", "forst")


def is_native(job: JobSpec, facts: Facts, id: str) -> bool:
    """Whether the savepoint of this job is taken in the native format: where the spec says so, or
    where no other can be taken.
    """
    asked = job.stop.get("format")
    return asked == "native" or (asked is None and _of(facts, id).no_canonical is not None)


def findings(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """What is known of the savepoints before they are taken."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    for one in (_of(facts, id) for id in job.flink.job_ids):
        if one.no_canonical is not None:
            yield from _of_format(job, one)
        yield from _of_widths(job, one)


def _of_format(job: JobSpec, one: Savable) -> Iterator[Finding]:
    if job.stop.get("format") == "native":
        return
    if job.stop.get("format") == "canonical":
        hint = 'leave out "format" of `stop`, or make it "native"'
        yield Finding("refuse", f"{one.no_canonical}: asked for one, the job fails", hint=hint)
        return
    needs = _needs_canonical(job, one)
    if needs is not None:
        fact = f"{one.no_canonical}, and {needs} needs one"
        yield Finding(
            "refuse", fact, hint="leave that out: a native savepoint is then taken by itself"
        )
        return
    yield Finding(
        "note",
        f"{one.no_canonical}: its savepoint is taken in the native format, which is "
        "restored by the "
        "state backend that wrote it alone",
    )


def _needs_canonical(job: JobSpec, one: Savable) -> str | None:
    """What a native savepoint would not do for."""
    for change in job.transform:
        if change["kind"] in REWRITE_STATE:
            return f'"kind": "{change["kind"]}"'
    options: Mapping[str, Any] = job.submit.options if job.submit is not None else {}
    configured = dict(options.get("flink_configuration") or {})
    wanted = next((str(configured[key]).lower() for key in _BACKENDS if key in configured), None)
    ours = next(
        (kind for kind in _KINDS if one.backend is not None and kind in one.backend.lower()), None
    )
    if wanted is not None and ours is not None and ours not in wanted:
        return f"the state backend {wanted!r} of `submit`, which is not the job's own,"
    return None


def _of_widths(job: JobSpec, one: Savable) -> Iterator[Finding]:
    """A job that goes on with more subtasks than its state has key groups is refused by Flink."""
    wanted = _parallelism(job)
    if wanted is None or any(change["kind"] in REWRITE_STATE for change in job.transform):
        return
    widest = max((count for count, _ in one.widths.values()), default=0)
    for name, (count, most) in one.widths.items():
        if count == widest and 1 < most < wanted:
            yield _too_wide(wanted, f"{name!r} of {one.name}", most)


def of_parallelism(
    job: JobSpec, surveys: Sequence[Survey], choice: Choice, deal: Dealing
) -> Iterator[Finding]:
    """The same, of an image. An operator with fewer subtasks than the widest has a number of its
    own, which `submit` does not change.
    """
    wanted = _parallelism(job)
    if wanted is None:
        return
    pairs = zip(surveys, choice.taken, strict=True)
    taken = []
    for survey, one in pairs:
        for o in _operators(survey):
            if o.id.hex() in one.operators:
                taken.append(o)
    widest = max((operator.parallelism for operator in taken), default=0)
    narrow = []
    for operator in taken:
        most = deal.max_parallelism or operator.max_parallelism
        if operator.parallelism == widest and operator.subtasks and 1 < most < wanted:
            narrow.append((most, operator.uid or operator.id.hex()))
    if narrow:
        most, name = min(narrow)
        more = f" (and of {len(narrow) - 1} more)" if len(narrow) > 1 else ""
        yield _too_wide(wanted, f"operator {name}{more}", most)


def _too_wide(wanted: int, operator: str, most: int) -> Finding:
    return Finding(
        "refuse",
        f"`submit` asks for parallelism {wanted}, and the state of {operator} has max "
        f"parallelism {most}: Flink "
        "refuses it",
        hint=f'"parallelism" up to {most}; or {{"kind": "rescale", "max_parallelism": '
        f"{_power(wanted)}}} under "
        '"transform"',
    )


def _operators(survey: Survey) -> tuple[OperatorState, ...]:
    return tuple(metadata_of(survey.images[0]).operators)


def _parallelism(job: JobSpec) -> int | None:
    wanted = job.submit.options.get("parallelism") if job.submit is not None else None
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None


def _power(count: int) -> int:
    """The power of two from there on, as Flink chooses itself."""
    return 1 << max(7, (count - 1).bit_length())


def _of(facts: Facts, id: str) -> Savable:
    known = facts.source_cluster.savable if facts.source_cluster is not None else ()
    return next((one for one in known if one.id == id), Savable(id))
