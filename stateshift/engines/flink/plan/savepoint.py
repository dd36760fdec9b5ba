"""The format in which a savepoint is taken, and the parallelism with which its job can go on. Pure.

A canonical savepoint fits any state backend, and can be rescaled by us. Not every job can write
one; a native one does where nothing needs the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stateshift.engines.flink.rewrite.move import Move
from stateshift.formats.flink.metadata import OperatorState
from stateshift.specification import JobSpec
from stateshift.survey import Facts, Finding, Savable

REWRITE_STATE = ("rescale", "union")  # changes that read keyed state, key by key
_BACKENDS = ("state.backend.type", "state.backend")
_KINDS = ("hashmap", "rocksdb", "forst")


def is_native(job: JobSpec, facts: Facts, id: str) -> bool:
    """Whether the savepoint of this job is taken in the native format: where the spec says so, or
    where no other can be taken.
    """
    asked = job.stop.get("format")
    if asked is None:
        return _savable(facts, id).no_canonical is not None
    return bool(asked == "native")


def findings(job: JobSpec, facts: Facts) -> Iterator[Finding]:
    """Yield what is known of the savepoints before they are taken."""
    assert job.flink is not None, "only who names jobs is asked for their savepoints"
    for id_ in job.flink.job_ids:
        savable = _savable(facts, id_)
        if savable.no_canonical is not None:
            yield from _of_format(job, savable)
        yield from _of_widths(job, savable)


def _of_format(job: JobSpec, savable: Savable) -> Iterator[Finding]:
    if job.stop.get("format") == "native":
        return
    if job.stop.get("format") == "canonical":
        hint = 'leave out "format" of `stop`, or make it "native"'
        yield Finding("refuse", f"{savable.no_canonical}: asked for one, the job fails", hint=hint)
        return
    needs = _needs_canonical(job, savable)
    if needs is not None:
        fact = f"{savable.no_canonical}, and {needs} needs one"
        yield Finding(
            "refuse", fact, hint="leave that out: a native savepoint is then taken by itself"
        )
        return
    yield Finding(
        "note",
        f"{savable.no_canonical}: its savepoint is taken in the native format, which is restored "
        "by the state backend that wrote it alone",
    )


def _needs_canonical(job: JobSpec, savable: Savable) -> str | None:
    """Return what a native savepoint would not do for."""
    rewriting = _rewriting_change(job)
    if rewriting is not None:
        return f'"kind": "{rewriting}"'
    wanted = _configured_backend(job)
    backend = (savable.backend or "").lower()
    ours = next((kind for kind in _KINDS if kind in backend), None)
    if wanted is None or ours is None or ours in wanted:
        return None
    return f"the state backend {wanted!r} of `submit`, which is not the job's own,"


def _rewriting_change(job: JobSpec) -> str | None:
    """Return the kind of the first change that reads keyed state, key by key."""
    for change in job.transform:
        if change["kind"] in REWRITE_STATE:
            return str(change["kind"])
    return None


def _configured_backend(job: JobSpec) -> str | None:
    """Return the state backend with which `submit` starts the job, where it names one."""
    if job.submit is None:
        return None
    configured: Mapping[str, object] = job.submit.options.get("flink_configuration") or {}
    for key in _BACKENDS:
        if key in configured:
            return str(configured[key]).lower()
    return None


def _of_widths(job: JobSpec, savable: Savable) -> Iterator[Finding]:
    """Yield a refusal for more subtasks than there are key groups: Flink does not start that."""
    wanted = _parallelism(job)
    if wanted is None or _rewriting_change(job) is not None:
        return
    widest = max((count for count, _ in savable.widths.values()), default=0)
    for name, (count, most) in savable.widths.items():
        if count == widest and 1 < most < wanted:
            yield _too_wide(wanted, f"{name!r} of {savable.name}", most)


def of_parallelism(job: JobSpec, move: Move) -> Iterator[Finding]:
    """Yield the same, of an image."""
    wanted = _parallelism(job)
    if wanted is None:
        return
    narrow = []
    for operator in _widest(move.operators):
        most = move.redistribution.max_parallelism or operator.max_parallelism
        if 1 < most < wanted:
            narrow.append((most, operator.uid or operator.id.hex()))
    if narrow:
        most, name = min(narrow)
        more = f" (and of {len(narrow) - 1} more)" if len(narrow) > 1 else ""
        yield _too_wide(wanted, f"operator {name}{more}", most)


def _widest(operators: Sequence[OperatorState]) -> list[OperatorState]:
    """Return the operators with the most subtasks. One with fewer has a number of its own, which
    `submit` does not change.
    """
    running = [operator for operator in operators if operator.subtasks]
    widest = max((operator.parallelism for operator in operators), default=0)
    return [operator for operator in running if operator.parallelism == widest]


def _too_wide(wanted: int, operator: str, most: int) -> Finding:
    power_of_two = 1 << max(7, (wanted - 1).bit_length())
    return Finding(
        "refuse",
        f"`submit` asks for parallelism {wanted}, and the state of {operator} has max parallelism "
        f"{most}: Flink refuses it",
        hint=f'"parallelism" up to {most}; or {{"kind": "rescale", "max_parallelism": '
        f'{power_of_two}}} under "transform"',
    )


def _savable(facts: Facts, id: str) -> Savable:
    known = facts.source_cluster.savable if facts.source_cluster is not None else ()
    return next((savable for savable in known if savable.id == id), Savable(id))


def _parallelism(job: JobSpec) -> int | None:
    wanted = job.submit.options.get("parallelism") if job.submit is not None else None
    return wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else None
