"""A check of one savepoint or checkpoint of Flink: has Flink plan the file, and compares."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stateshift.check.flink import capture
from stateshift.check.flink.compare import (
    KEYED,
    STATE,
    VALUES,
    FlinkTarget,
    Pair,
    compare,
    value_types,
)
from stateshift.check.flink.job import CodeJob, code_job
from stateshift.check.process import Capture, rehearsal_in, run_capture
from stateshift.check.verdict import Checked, CheckedQuery, Difference, Rehearsal
from stateshift.engines.flink.image import flink_facts
from stateshift.engines.flink.jvm import distribution
from stateshift.engines.registry import engine, find_image
from stateshift.engines.views import Opening
from stateshift.errors import PlanError, SpecError
from stateshift.plain import JsonObject
from stateshift.specification.transform import Rescale, find_change
from stateshift.storage.opening import open_patiently
from stateshift.survey import Survey

if TYPE_CHECKING:
    from stateshift.check import Code


@dataclass(frozen=True, slots=True)
class SurveyedSavepoint:
    """A savepoint or checkpoint, and the way to survey it again."""

    location: str
    survey: Survey
    opening: Opening

    def obstacles(self, change: Rescale) -> tuple[str, ...]:
        """Return the facts for which its state cannot be rescaled."""
        _, survey = engine("flink").survey(self.location, self.opening, changes=(change,))
        (image,) = survey.images
        return tuple(obstacle.fact for obstacle in flink_facts(image).rigid.values())


def check_savepoint(
    savepoint: SurveyedSavepoint, code: Code, query: str | None, waive: tuple[str, ...]
) -> Checked:
    """Return the verdict on the job of a file that shall start from this image."""
    answer = plan_file(code)
    if code.before is not None:
        answer = {**answer, "before": plan_file(replace(code, file=code.before))}
    return judge(savepoint, answer, code, query, waive)


def judge(
    savepoint: SurveyedSavepoint,
    answer: JsonObject,
    code: Code,
    query: str | None,
    waive: tuple[str, ...],
) -> Checked:
    """Return the verdict on the job of an answer of `capture.py`; `before` of the old code."""
    job = _chosen(answer, query, code.file)
    before = None
    if code.before is not None:
        before = _chosen(answer["before"], query, code.before)
    (image,) = savepoint.survey.images
    target = FlinkTarget(answer["flink"], code.allow_non_restored)
    checked = compare(Pair(job, image, target, before=before), waive)
    rescale = find_change(checked.changes, Rescale)
    if rescale is not None:
        target = replace(target, rigid=savepoint.obstacles(rescale))
        checked = compare(Pair(job, image, target, before=before), waive)
    return Checked(
        image=savepoint.location,
        file=code.file,
        engine="flink",
        engine_version=answer["flink"],
        queries=(checked,),
    )


def rehearse(query: CheckedQuery, code: Code, fork: str) -> Rehearsal:
    """Have a Flink in one process restore the keyed operators of a job from a fork, and open them.

    Raises:
        PlanError: the file does not start the job this time, or its state needs more memory.
    """
    _, _, survey = find_image(fork, open_patiently)
    (image,) = survey.images
    providers = {(each.provider or "canonical").rpartition(" ")[2] for each in image.operators}
    native = sorted(providers - {"canonical"})
    which = {"name": query.query, "from": fork, "backend": native[0] if native else None}
    answer = plan_file(code, which)
    told = rehearsal_in(answer, query.query, code)
    if told["is_short"]:
        raise PlanError(
            "a rehearsal of Flink restores all keyed state in one process, whose memory it exceeds",
            hint="fork the image (stateshift fork), and start the job from it on a cluster",
        )
    answers: set[tuple[str, str]] = set()
    unopened: list[Difference] = []
    did = "the job has no keyed operator: nothing was restored"
    if told["operators"]:
        did = (
            f"Flink restored these keyed operators, and opened them: {', '.join(told['operators'])}"
        )
        answers.add((VALUES, KEYED))
        target = FlinkTarget(answer["flink"], code.allow_non_restored)
        pair = Pair(_chosen(answer, query.query, code.file), image, target, told["opened"])
        unopened = [each for each in value_types(pair) if each.place == KEYED]
    if told["operators"] and any(
        job["name"] == query.query and job["backend"] for job in answer["jobs"]
    ):
        answers.add(("backend", STATE))
    return Rehearsal(
        engine="Flink",
        seconds=told["seconds"],
        did=did,
        error=told["error"],
        answers=frozenset(answers),
        unopened=tuple(unopened),
        is_final=told["is_of_state"],
    )


def plan_file(code: Code, which: JsonObject | None = None) -> JsonObject:
    """Return the jobs that a file starts, as Flink plans them; `which` of them is rehearsed.

    Raises:
        SpecError: the file is no jar or SQL, or there is no distribution of Flink.
        PlanError: it starts none.
    """
    if not code.file.endswith((".jar", ".sql")):
        raise SpecError.of(
            "--with", "of Flink, it is a jar, or a file of SQL: NAME.jar, NAME.sql", code.file
        )
    home, jars = distribution(code.flink)
    conf = os.environ.get("FLINK_CONF_DIR", f"{home}/conf")
    no_py4j = PlanError(
        "this environment has no Py4J, through which Flink is asked", hint="pip install py4j"
    )
    program = Capture(
        script=capture.__file__,
        python=sys.executable,
        request={
            "jars": jars,
            "conf": conf if os.path.isdir(conf) else None,
            "main_class": code.main_class,
            "parallelism": code.parallelism,
            "rehearse": which,
        },
        lacks={"No module named 'py4j'": no_py4j},
    )
    answer = run_capture(program, code.file, code)
    if not answer["jobs"]:
        raise PlanError(
            f"{code.file} starts no job",
            hint="what a jar starts may depend on its arguments: give them after --",
        )
    return answer


def _chosen(answer: JsonObject, name: str | None, file: str) -> CodeJob:
    """Return the job by its name, or as the only one."""
    jobs = [code_job(each) for each in answer["jobs"]]
    own = [job for job in jobs if name in (None, job.name)]
    if len(own) == 1:
        return own[0]
    shown = ", ".join(job.name for job in jobs)
    asked = "jobs" if name is None else f"jobs called {name}"
    raise PlanError(
        f"{file} starts {len(own) or 'no'} {asked}; it starts {shown}",
        hint="name the one that the image is of: --query NAME, which in SQL SET 'pipeline.name' "
        "gives",
    )
