"""A verdict on running jobs, from a program: `advise`; and what the command asks. Reads only."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stateshift import migration
from stateshift.advise import subjects
from stateshift.advise.advising import Advice, Adviser, Subject
from stateshift.advise.evaluate.inputs import inputs_from
from stateshift.advise.evaluate.settings import Settings, settings_from
from stateshift.advise.evaluate.verdicts import verdict_on
from stateshift.advise.subjects import Outside
from stateshift.api.local_files import text_of
from stateshift.api.requests import SpecLike, spec_of
from stateshift.api.runs import WORKDIRS, PathLike
from stateshift.api.values import JobAdvice
from stateshift.errors import Complaint, SpecError, StateshiftError
from stateshift.journal import RunFailed, RunResumed, decode_records
from stateshift.plain import Misfit
from stateshift.workdir import Workdir

if TYPE_CHECKING:
    from stateshift.migration import Adapters

WEB = ("http://", "https://")
_REPLAY_HINT = "name a file that `stateshift advise --json` has written"


@dataclass(frozen=True)
class AdviceRequest:
    """What somebody asks for. `given` is a spec, the URL of a Flink, or the location of a
    checkpoint of Spark; `workdirs` is where runs of ours have told how long jobs were down.
    """

    given: SpecLike
    jobs: Sequence[str] = ()
    settings: Settings = field(default_factory=Settings)
    sample_seconds: float = 60.0
    history: str | None = None
    cores: int | None = None
    workdirs: str | None = None


def advise(
    given: SpecLike,
    *,
    jobs: Sequence[str] = (),
    sample_seconds: float = 60.0,
    history: PathLike | None = None,
    settings: Mapping[str, object] | None = None,
    cores: int | None = None,
    workdirs: PathLike = WORKDIRS,
    adapters: Adapters | None = None,
) -> tuple[JobAdvice, ...]:
    """Say of each job whether it fits, or should scale or move. Reads only.

    Args:
        given: a spec, as `plan` takes it; the URL of a Flink; or a checkpoint of Spark.
        jobs: only these jobs.
        sample_seconds: how long to measure, where one look is not enough.
        history: a folder for each look; the next call measures from it on, and waits for nothing.
        settings: in place of the defaults, by the names that the Flink operator's autoscaler has.
        cores: what a job of Spark runs on.
        workdirs: where runs of ours have kept how long jobs were down.
        adapters: how storages, brokers and the clock are reached, where a test has its own.

    Returns:
        A verdict on each job. Together, their `to_dict()` are the document of
        `stateshift advise --json`.

    Raises:
        SpecError: the spec or a setting is not valid, or there is no such job.
        StorageError: the history cannot be read or written.
    """
    request = AdviceRequest(
        given,
        tuple(jobs),
        settings_from(settings or {}, "settings"),
        sample_seconds,
        None if history is None else os.fspath(history),
        cores,
        os.fspath(workdirs),
    )
    adviser = adviser_of(request, adapters or migration.real_adapters())
    return tuple(map(JobAdvice, adviser.round()))


def adviser_of(request: AdviceRequest, adapters: Adapters) -> Adviser:
    """Return who judges these jobs, in one round or in many.

    Raises:
        SpecError: the spec is not valid, or has no such job.
        StorageError: the history cannot be read.
    """
    outside = Outside(
        adapters.open_storage,
        adapters.ask_topics,
        adapters.clock,
        request.settings,
        restarts_below(request.workdirs),
        request.cores,
    )
    return Adviser(
        _subjects(request, outside),
        request.settings,
        adapters.clock,
        request.sample_seconds,
        None if request.history is None else Path(request.history),
    )


def _subjects(request: AdviceRequest, outside: Outside) -> list[Subject]:
    given, only = request.given, request.jobs
    if not isinstance(given, str):
        return subjects.of_spec(spec_of(given), only, outside)
    if given.startswith(WEB):
        return subjects.of_flink(given, only, outside)
    if os.path.isdir(given) or "://" in given:
        if only:
            message = "a checkpoint has no jobs by name"
            raise SpecError((Complaint("--job", message),), hint="leave --job out")
        return subjects.of_checkpoint(given, outside)
    return subjects.of_spec(spec_of(given), only, outside)


def restarts_below(workdirs: str | None) -> dict[str, float]:
    """Return how long each job was down in our own runs: the longest of them. A run that failed, or
    was interrupted, tells how long nobody went on with it.
    """
    longest: dict[str, float] = {}
    for path in _runs_below(workdirs):
        try:
            workdir = Workdir(path)
            jobs = () if _was_cut_short(workdir) else migration.status(workdir).jobs
        except StateshiftError:
            continue
        for job in jobs:
            if job.downtime_seconds is not None:
                longest[job.job] = max(longest.get(job.job, 0.0), job.downtime_seconds)
    return longest


def _was_cut_short(workdir: Workdir) -> bool:
    """Whether a run has ended before its time, whatever it has come to since."""
    records, _ = decode_records(workdir.lines.read())
    return any(isinstance(record, RunFailed | RunResumed) for record in records)


def _runs_below(workdirs: str | None) -> Iterator[str]:
    if workdirs is None or not os.path.isdir(workdirs):
        return
    for name in sorted(os.listdir(workdirs)):
        path = os.path.join(workdirs, name)
        if os.path.exists(os.path.join(path, "journal")):
            yield path


def replayed(path: str, only: Collection[str] = ()) -> list[Advice]:
    """Return the verdicts that the inputs in a file lead to: what `--json` has printed.

    Raises:
        SpecError: the file cannot be read, or holds no such inputs.
    """
    text = text_of(path, _REPLAY_HINT, path)
    try:
        plain = json.loads(text)
        documents = plain if isinstance(plain, list) else [plain]
        inputs = [inputs_from(document["inputs"]) for document in documents]
    except (Misfit, ValueError, KeyError, TypeError, RecursionError) as error:
        fact = f"no verdict with its inputs: {error}"
        raise SpecError((Complaint(path, fact),), hint=_REPLAY_HINT) from error
    if only:
        inputs = [each for each in inputs if each.around.job in only]
    return [Advice(each, verdict_on(each)) for each in inputs]
