"""The ordinary spec of one move: what a person would write to move these jobs, and no more.

The number of the move is in the place of the image, so that a job which comes back to a cluster
meets no image of its earlier stay there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from stateshift.api.rebalancing.past import JobPlace
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.rebalancing.survey import SurveyResult
from stateshift.api.rebalancing.whereabouts import with_parallelism
from stateshift.errors import StateshiftError
from stateshift.extensions import names_added
from stateshift.migration.submit_corrections import read_started_jobs
from stateshift.specification import (
    JobSpec,
    Mode,
    Spec,
    SubmitSpec,
    parse_spec,
    to_plain_spec,
)
from stateshift.specification.rebalancing import JOB, MOVE
from stateshift.workdir import Workdir

# Beside an image: the folder in which Flink puts the savepoint that a job leaves a cluster with.
TAKEN = "-taken"
# A file's name has at most 255 bytes.
NAME_MAX = 200


@dataclass(frozen=True, slots=True)
class Way:
    """The way that jobs move: from where to where, as which move, and how; and the parallelism of
    those that get another one.
    """

    jobs: tuple[str, ...]
    source: str
    target: str
    number: int
    mode: Mode = "move"
    parallelism: Mapping[str, int] = field(default_factory=dict)


def image_of(request: RebalanceRequest, job: str, cluster: str, number: int) -> str | None:
    """Return the location of a job's image on a cluster; None if images stay where they are."""
    section = next(each for each in request.clusters if each.name == cluster)
    if section.images is None:
        return None
    return section.images.replace(JOB, file_name(job)).replace(MOVE, str(number))


def file_name(job: str) -> str:
    """Return a job's name as a part of a location: two names never become one, and none is too
    long for a file.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", job).strip("-.")[:NAME_MAX]
    if plain == job:
        return job
    digest = hashlib.sha256(job.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{plain}-{digest}" if plain else digest


def spec_of_move(request: RebalanceRequest, surveyed: SurveyResult, way: Way) -> Spec:
    """Return the spec of one move, checked as one that a person wrote.

    Raises:
        SpecError: jobs of this kind cannot be moved like that.
    """
    spec = request.spec
    jobs = tuple(_job(request, surveyed, name, way) for name in way.jobs)
    names = [job.name for job in jobs]
    dataflow = spec.dataflow
    if dataflow is not None and not {each.job for each in dataflow.operators}.issuperset(names):
        dataflow = None
    made = replace(
        spec,
        jobs=jobs,
        rebalance=None,
        # Nobody watches: what fails is taken back whole, unless the spec says otherwise.
        on_failure="rollback" if spec.on_failure == "restart" else spec.on_failure,
        waves=(tuple(names),) if len(names) > 1 else (),
        strategy=None,
        dataflow=dataflow,
    )
    return parse_spec(json.dumps(to_plain_spec(made)), names_added=names_added)


def _job(request: RebalanceRequest, surveyed: SurveyResult, name: str, way: Way) -> JobSpec:
    job, where = surveyed.jobs[name], surveyed.whereabouts[name]
    moved = replace(
        job,
        target=image_of(request, name, way.target, way.number),
        source_cluster=way.source,
        target_cluster=way.target,
        source_submit=job.source_submit
        or _submit_of_move(request, name, where.place)
        or job.submit,
        mode=way.mode,
    )
    if name in way.parallelism:
        moved = with_parallelism(moved, way.parallelism[name])
    if job.flink is None:
        return moved
    # Flink puts its savepoint into the spec's folder, as long as the job is where the spec has it.
    folder = job.source
    image = None
    if where.place.number is not None:
        image = image_of(request, name, way.source, way.number)
    if image is not None:
        folder = image + TAKEN
    ids = () if where.id is None else (where.id,)
    flink = replace(job.flink, job_ids=ids, target_directory=folder, new_savepoint=None)
    return replace(moved, source=folder, flink=flink)


def _submit_of_move(request: RebalanceRequest, name: str, place: JobPlace) -> SubmitSpec | None:
    """Return the submission that started the job where it is, if one of our moves brought it there:
    the spec may say something else by now.
    """
    if place.number is None:
        return None
    for folder in (Path(request.folder) / "runs").glob(f"{place.number:04}-*"):
        with suppress(StateshiftError):
            moved = read_started_jobs(Workdir(folder)).get(name)
            return None if moved is None else moved.submit
    return None
