"""A verdict on running jobs, from a program: `advise`; and what the command asks. Reads only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from stateshift import migration
from stateshift.advise import subjects
from stateshift.advise.advising import Advice, Adviser, Subject
from stateshift.advise.evaluate.inputs import inputs_from
from stateshift.advise.evaluate.settings import Settings, settings_from
from stateshift.advise.evaluate.verdicts import verdict_on
from stateshift.advise.subjects import Outside
from stateshift.api.local_files import text_of
from stateshift.api.rebalancing.folder import RebalanceFolder, usual_folder
from stateshift.api.rebalancing.past import past_of, restarts_below
from stateshift.api.rebalancing.request import clusters_of
from stateshift.api.rebalancing.whereabouts import (
    Whereabouts,
    jobs_meant,
    jobs_now,
    list_jobs,
    move_times,
    refuse_lost_clusters,
)
from stateshift.api.requests import SpecLike, spec_of
from stateshift.api.runs import WORKDIRS, PathLike
from stateshift.api.values import JobAdvice
from stateshift.errors import Complaint, SpecError
from stateshift.plain import Misfit
from stateshift.specification import Spec
from stateshift.specification.rebalancing import is_pattern, matches
from stateshift.specification.values import WEB
from stateshift.workdir import Workdir

if TYPE_CHECKING:
    from stateshift.migration import Adapters

_GIVEN_HINT = "name a spec, the URL of a Flink (http://jobmanager:8081) or a checkpoint of Spark"
_REPLAY_HINT = "name a file that `stateshift advise --json` has written"


@dataclass(frozen=True)
class AdviceRequest:
    """A request for advice. `given` is a spec, the URL of a Flink, or the location of a
    checkpoint of Spark; `workdirs` is where runs of ours have told how long jobs were down;
    `driver_ui` is the page of the driver of the only job of Spark that is asked for,
    `driver_ca_file` the authority that signed its certificate, `rebalance` the folder in which runs
    of `rebalance` keep what they know.
    """

    given: SpecLike
    jobs: Sequence[str] = ()
    settings: Settings = field(default_factory=Settings)
    sample_seconds: float = 60.0
    history: str | None = None
    cores: int | None = None
    workdirs: str | None = None
    driver_ui: str | None = None
    rebalance: str | None = None
    driver_ca_file: str | None = None


def advise(
    given: SpecLike,
    *,
    jobs: Sequence[str] = (),
    sample_seconds: float = 60.0,
    history: PathLike | None = None,
    settings: Mapping[str, object] | None = None,
    cores: int | None = None,
    workdirs: PathLike = WORKDIRS,
    driver_ui: str | None = None,
    driver_ca_file: PathLike | None = None,
    rebalance: PathLike | None = None,
    adapters: Adapters | None = None,
) -> tuple[JobAdvice, ...]:
    """Say of each job whether it fits, or should scale or move. Reads only.

    Args:
        given: a spec, as `plan` takes it; the URL of a Flink; or a checkpoint of Spark.
        jobs: only these jobs.
        sample_seconds: how long to measure, where one look is not enough.
        history: a folder for each look; the next call measures from it on, and waits for nothing.
        settings: in place of the defaults, by the names that the Flink operator's autoscaler has.
        cores: what a job of Spark runs on, whatever its driver or the spec says.
        workdirs: where runs of ours have kept how long jobs were down.
        driver_ui: the page of the driver of a job of Spark, such as http://driver:4040.
        driver_ca_file: the certificate authority that signed the driver's key, if that is https.
        rebalance: where `rebalance` keeps what it knows of the spec's jobs, such as where it has
            moved them; without it WORKDIRS/rebalance-<spec>, as for `rebalance` itself.
        adapters: how storages, brokers and the clock are reached, where a test has its own.

    Returns:
        A verdict on each job. Together, their `to_dict()` are the document of
        `stateshift advise --json`.

    Raises:
        SpecError: the spec or a setting is not valid, or there is no such job.
        StorageError: the history cannot be read or written.
        JournalError: what `rebalance` has kept cannot be read.
    """
    if sample_seconds <= 0:
        message = "it takes some time to measure"
        raise SpecError((Complaint("sample_seconds", message),), hint="sample_seconds=60")
    if cores is not None and cores < 1:
        message = f"{cores}: expected a number from 1 on"
        raise SpecError((Complaint("cores", message),), hint="cores=4, or leave it out")
    request = AdviceRequest(
        given,
        tuple(jobs),
        settings_from(settings or {}, "settings"),
        sample_seconds,
        None if history is None else os.fspath(history),
        cores,
        os.fspath(workdirs),
        driver_ui,
        None if rebalance is None else os.fspath(rebalance),
        None if driver_ca_file is None else os.fspath(driver_ca_file),
    )
    adviser = adviser_of(request, adapters or migration.real_adapters())
    return tuple(map(JobAdvice, adviser.round()))


def adviser_of(request: AdviceRequest, adapters: Adapters) -> Adviser:
    """Return the adviser of these jobs, for one round or many: each round finds them again, where
    `rebalance` has moved them.

    Raises:
        SpecError: the spec is not valid.
    """
    restarts, folder = restarts_below(request.workdirs), _folder_of(request)
    if folder is not None:
        restarts |= restarts_below(folder.runs)
    outside = Outside(
        adapters.open_storage,
        adapters.ask_topics,
        adapters.clock,
        request.settings,
        restarts,
        request.cores,
        request.driver_ui,
        request.driver_ca_file,
    )
    return Adviser(
        _finding(request, outside, adapters),
        request.settings,
        adapters.clock,
        request.sample_seconds,
        None if request.history is None else Path(request.history),
    )


def _finding(
    request: AdviceRequest, outside: Outside, adapters: Adapters
) -> Callable[[], list[Subject]]:
    """Return the function that finds the jobs. A spec is read once."""
    given, only = request.given, request.jobs
    if request.driver_ui is not None and not request.driver_ui.startswith(WEB):
        which = f"it begins with neither {' nor '.join(WEB)}"
        _refuse_driver_ui(request, which, "--driver-ui http://driver:4040")
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    if not isinstance(given, str):
        return partial(_of_spec, spec_of(given), request, outside, adapters)
    if given.startswith(WEB):
        _refuse_driver_ui(request, f"{given} is a Flink, and only Spark has such a driver")
        return partial(subjects.of_flink, given, only, outside)
    if os.path.isdir(given) or "://" in given:
        if only:
            message = "a checkpoint has no jobs by name"
            raise SpecError((Complaint("--job", message),), hint="leave --job out")
        return partial(subjects.of_checkpoint, given, outside)
    return partial(_of_spec, spec_of(given, _GIVEN_HINT), request, outside, adapters)


def _of_spec(
    given: Spec, request: AdviceRequest, outside: Outside, adapters: Adapters
) -> list[Subject]:
    spec, where = _as_it_is_now(given, request, adapters)
    if spec.engine == "flink":
        _refuse_driver_ui(request, "these are jobs of Flink, and only Spark has such a driver")
    names = request.jobs or [job.name for job in spec.jobs]
    if len(names) > 1:
        which = f"a driver has one job, and this would be that of {', '.join(names)}"
        _refuse_driver_ui(request, which, f"--job {quote(names[0])}, or `driver_ui` in the spec")
    notes = {}
    for name, each in where.items():
        notes[name] = each.unknown or each.note
        if not notes[name] and each.place.number is not None:
            place = each.place.cluster
            notes[name] = f"it was looked at on {place}, where `rebalance` has moved it"
    outside = replace(outside, notes=notes, since=move_times(where, adapters.clock.now()))
    return subjects.of_spec(spec, request.jobs, outside)


def _refuse_driver_ui(request: AdviceRequest, why: str, hint: str = "leave it out") -> None:
    if request.driver_ui is not None:
        raise SpecError((Complaint("--driver-ui", why),), hint=hint)


def _folder_of(request: AdviceRequest) -> RebalanceFolder | None:
    """Return the folder of `rebalance` for a spec; None of a spec in no file."""
    if request.rebalance is not None:
        return RebalanceFolder(request.rebalance)
    if isinstance(request.given, str | os.PathLike):
        path = os.fspath(request.given)
        return RebalanceFolder(usual_folder(request.workdirs or WORKDIRS, path))
    return None


def _as_it_is_now(
    spec: Spec, request: AdviceRequest, adapters: Adapters
) -> tuple[Spec, dict[str, Whereabouts]]:
    """Return the spec with the jobs that run now: those that its patterns mean, and each where
    `rebalance` has moved it. Also return where they run, by their names, if it may have moved some.
    """
    where: dict[str, Whereabouts] = {}
    patterns = [job for job in spec.jobs if is_pattern(job.name)]
    if spec.rebalance is not None:
        names = [cluster.name for cluster in clusters_of(spec)]
    elif patterns:
        names = sorted({job.source_cluster for job in patterns if job.source_cluster is not None})
    else:
        return spec, where
    folder = _folder_of(request)
    place = Workdir(os.path.join(WORKDIRS, "plan")) if folder is None else folder.place
    clusters = list_jobs(spec, names, adapters, place)
    if spec.rebalance is None:
        meant = jobs_meant(spec.jobs, clusters, {})
    else:
        places = {} if folder is None else past_of(folder).places
        asked = places
        if request.jobs:
            asked = {job: place for job, place in places.items() if job in request.jobs}
        refuse_lost_clusters(spec.jobs, asked, names)
        present, where = jobs_now(spec.jobs, clusters, places)
        meant = tuple(present.values())
    # A pattern that means no job that runs gets a verdict that says so.
    running = [job.name for job in meant]
    unmatched = [job for job in patterns if not any(matches(name, job.name) for name in running)]
    return replace(spec, jobs=(*meant, *unmatched)), where


def replay_advice(path: str, only: Collection[str] = ()) -> list[Advice]:
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
