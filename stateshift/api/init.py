"""A spec to begin with, for what is at a location, on a cluster of Flink, or in another spec.

    look(place)                 -> Found: what is there
    questions(found, goal)      -> what nobody can see there, each with its default if it has one
    make_spec(found, goal, …)   -> the spec as plain values, in the order in which a person reads it
    as_json, as_yaml, page      -> its texts: YAML with a comment a key, a page that explains it

The answers make the spec; nothing is guessed that would lose state. Findings that refuse its plan
are waived by whoever answers for them, and by nobody else.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from stateshift.api.requests import spec_of
from stateshift.clusters.protocol import RunningJob
from stateshift.errors import PlanError, SpecError
from stateshift.migration import Adapters
from stateshift.plain import JsonObject
from stateshift.specification import ClusterSpec, to_plain_spec
from stateshift.specification.job_keys import JOB
from stateshift.specification.key import Keys
from stateshift.specification.place import readable
from stateshift.specification.spec_keys import SPEC
from stateshift.specification.text import protect
from stateshift.specification.values import WEB
from stateshift.specification.written import SPEC_SUFFIXES
from stateshift.survey import Finding
from stateshift.terms import terms_of
from stateshift.workdir import Workdir

Goal = Literal["move", "standby", "rebalance", "drill"]
GOALS: tuple[Goal, ...] = ("move", "standby", "rebalance", "drill")
# The next commands by goal, and when each is for; {spec} and {at} are filled in.
NEXT: Mapping[Goal, tuple[tuple[str, str], ...]] = {
    "move": (
        ("stateshift plan {spec}", "what would be done; changes nothing"),
        ("stateshift apply {spec}", "does it"),
    ),
    "standby": (
        ("stateshift plan {spec}", "what would be done; changes nothing"),
        ("stateshift apply {spec} --continuous", "keeps the standby; runs until it is stopped"),
        ("stateshift failover {at}", "on the day when the job is lost: starts it at its standby"),
    ),
    "drill": (
        ("stateshift apply {spec} --continuous", "keeps the standby; runs until it is stopped"),
        ("stateshift drill {at}", "a rehearsal of the failover: the job runs on"),
    ),
    "rebalance": (
        ("stateshift rebalance {spec} --once", "which moves are worth it; changes nothing"),
        ("stateshift rebalance {spec} --once --yes", "does them"),
    ),
}


@dataclass(frozen=True, slots=True)
class Found:
    """The ground of a spec: an image, running jobs of Flink, or another spec."""

    place: str
    engine: str
    facts: tuple[str, ...]
    name: str = "orders"
    jobs: tuple[RunningJob, ...] = ()
    spec: JsonObject | None = None

    @property
    def is_cluster(self) -> bool:
        return self.place.startswith(WEB)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the key of its answer, and the answer of who has none; None: there is none. It is
    asked only after an answer to the question `needs`.
    """

    key: str
    words: str
    default: str | None = None
    needs: str | None = None


START = Question("start", "The command that starts the job there (none: you start it)?", "")
STOP = (
    Question(
        "stop",
        "The command that stops the job where it runs now (none: you stop it before)?",
        "",
        needs="start",
    ),
    Question(
        "restart",
        "The command that starts it there again, if the move fails (none: you start it)?",
        "",
        needs="stop",
    ),
)


def look(place: str, adapters: Adapters) -> Found:
    """Return the image, the running jobs or the spec at a place.

    Raises:
        PlanError: there is neither an image nor a running job.
    """
    from stateshift.engines.registry import absence, find_image
    from stateshift.storage.locations import job_name, normal, parent

    if os.path.isfile(place) or place.lower().endswith(SPEC_SUFFIXES):
        spec = spec_of(place)
        facts: tuple[str, ...] = (f"a spec of {', '.join(job.name for job in spec.jobs)}",)
        return Found(place, spec.engine, facts, spec.jobs[0].name, spec=to_plain_spec(spec))
    if place.startswith(WEB):
        asked = ClusterSpec("here", "flink_rest", {"url": place})
        cluster = adapters.open_cluster(asked, Workdir(".stateshift/init"))
        jobs: tuple[RunningJob, ...] = getattr(cluster, "alive", tuple)()
        if not jobs:
            hint = "start the job, or name its savepoint instead"
            raise PlanError(f"no job runs on the Flink at {place}", hint=hint)
        running = [readable(f"{job.name} runs ({job.id})") for job in jobs]
        facts = (f"Flink {cluster.version()}", *running)
        return Found(place, "flink", facts, jobs[0].name, jobs)
    location = normal(place, os.getcwd())
    engine, _, survey = find_image(location, adapters.open_storage)
    if not survey.images:
        there = parent(location) if survey.kind == "empty" else location
        hint = f"check the path: stateshift inspect {quote(there)}"
        fact = f"there is no image of a job at {location}"
        raise PlanError(absence(location) if survey.kind == "empty" else fact, hint=hint)
    at = f"{terms_of(engine.name).at} {survey.epoch}"
    facts = (
        f"a {survey.kind} of {engine.name.capitalize()} at {at}",
        f"{len(survey.files):,} files, {survey.bytes:,} bytes",
    )
    return Found(location, engine.name, facts, job_name(location))


def questions(found: Found, goal: Goal) -> Iterator[Question]:
    """Yield the questions whose answers make a spec for this goal.

    Raises:
        PlanError: what was found does not serve the goal.
    """
    if goal == "rebalance" and not found.is_cluster and "rebalance" not in (found.spec or ()):
        hint = "stateshift init http://jobmanager:8081 --for rebalance"
        raise PlanError("jobs are moved between clusters: name the URL of one", hint=hint)
    if found.engine == "flink" and goal in ("standby", "drill") and not found.jobs:
        hint = f"stateshift init http://jobmanager:8081 --for {goal}"
        raise PlanError("a standby follows a running job: name its cluster's URL", hint=hint)
    if found.spec is not None:
        return
    if found.jobs and goal != "rebalance":
        names = [job.name for job in found.jobs]
        only = names[0] if len(names) == 1 else None
        yield Question("job", f"Which job, by name or id ({', '.join(names)})?", only)
    elif goal != "rebalance":
        yield Question("name", "What is the job called?", found.name)
    if found.is_cluster:
        yield Question("other", "The URL of the other Flink?")
        yield Question("savepoints", "Where does Flink put savepoints of it?")
        yield Question("jar", "The job's jar, on this machine?")
    if goal == "rebalance":
        yield Question("images", "Where do moved images go: a folder that both clusters reach?")
        return
    yield Question("to", "Where does its image go?")
    if not found.is_cluster:
        yield START
        yield from STOP if goal == "move" else ()  # a standby's job is not stopped
    if goal in ("standby", "drill"):
        yield Question("rpo", "How much work may be lost at most?", "15min")


def make_spec(
    found: Found, goal: Goal, answers: Mapping[str, str], waive: Sequence[str] = ()
) -> dict[str, object]:
    """Return the spec that the answers make."""
    if found.spec is not None:
        return {**found.spec, "jobs": [_for_goal(dict(each), goal) for each in found.spec["jobs"]]}
    plain: dict[str, object] = {"version": 1, "engine": found.engine}
    if found.is_cluster:
        other = {"kind": "flink_rest", "url": answers["other"]}
        plain["clusters"] = {"here": {"kind": "flink_rest", "url": found.place}, "other": other}
        start = {"jar": answers["jar"]}
        job: dict[str, object] = {
            "source_cluster": "here",
            "target_directory": answers["savepoints"],
            "submit": start,
        }
        if goal == "rebalance":
            where = {"images": f"{answers['images'].rstrip('/')}/{{job}}/{{move}}"}
            plain["rebalance"] = {"clusters": {"here": where, "other": where}}
            plain["jobs"] = [{"name": each.name, **job} for each in found.jobs]
            return plain
        answer = answers["job"]
        meant = [job for job in found.jobs if answer in (job.name, job.id)]
        if len(meant) == 1:
            running = meant[0]
        else:
            fact = f"{len(meant)} jobs that run are called {answer!r}"
            ids = ", ".join(f"{job.id} ({job.name})" for job in found.jobs)
            raise SpecError.of("job", fact, answer, f"one of {ids}")
        job |= {"target_cluster": "other", "new_savepoint_path": answers["to"]}
        job = {"name": running.name, "job_ids": [running.id], **job, "source_submit": start}
    else:
        job = {"name": answers["name"], "checkpoint_location": found.place}
        job["remote_location"] = answers["to"]
        if answers["start"]:
            # The spec may be used elsewhere, and means the same commands.
            common = {"kind": "command", "cwd": os.getcwd()}
            stop = {"stop": answers["stop"]} if answers.get("stop") else {}
            clusters = {"commands": {**common, "submit": answers["start"], **stop}}
            job |= {"target_cluster": "commands", "submit": {}}
            if stop:
                job["source_cluster"] = "commands"
            if stop and answers.get("restart"):
                clusters["commands-here"] = {**common, "submit": answers["restart"], **stop}
                job |= {"source_cluster": "commands-here", "source_submit": {}}
            plain["clusters"] = clusters
    job = _for_goal(job, goal)
    if "rpo" in answers:
        job["standby"] = {"rpo": answers["rpo"]}
    if waive:
        job["waive"] = list(waive)
    protected: dict[str, object] = protect({**plain, "jobs": [job]})
    return protected


def _for_goal(job: dict[str, object], goal: Goal) -> dict[str, object]:
    if goal in ("standby", "drill"):
        job |= {"mode": "warm", "cutover": "never"}
    return job


# -------------------------------------------------------------------------- texts


def as_json(plain: JsonObject) -> str:
    """Return a spec as JSON."""
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def as_yaml(plain: JsonObject) -> str:
    """Return a spec as YAML, with each key's sentence above it. Values are spelled as in JSON,
    which is YAML that no version reads otherwise.
    """
    lines = list(_yaml_object({key: plain[key] for key in plain if key != "jobs"}, SPEC, ""))
    lines.append("jobs:")
    for job in plain["jobs"]:
        first, *others = _yaml_object(job, JOB, "    ")
        lines += [f"  - {first.strip()}", *others]
    return "\n".join(lines) + "\n"


def _yaml_object(values: JsonObject, keys: Keys, indent: str) -> Iterator[str]:
    for position, (name, value) in enumerate(values.items()):
        key = keys.find(name)
        if key is not None and (indent == "" or position):
            comment = textwrap.wrap(key.about, 90)
            yield from (f"{indent}# {line}" for line in comment)
        text = json.dumps(value, ensure_ascii=False)
        text = _NO_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        text = _POWERS.sub(lambda match: f"{match[1]}.0{match[2]}" if match[1] else match[0], text)
        yield f"{indent}{name}: {text}"


# JSON has these literally; YAML 1.1 has them as escapes, and powers of ten with a dot.
_NO_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_POWERS = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![.0-9])(-?[0-9]+)(e[-+][0-9]+)')


def page(
    found: Found, goal: Goal, plain: JsonObject, file: str, refusals: Sequence[Finding], flags: str
) -> str:
    """Return a page that explains a spec: what it is for, its keys, and the next commands."""
    lines = [f"# {os.path.basename(file)}: {goal}", ""]
    place = quote(readable(found.place))
    lines += [f"Written by `stateshift init {place}`.", "", "Found there:", ""]
    lines += [f"* {fact}" for fact in found.facts]
    lines += ["", "| key | means |", "|---|---|"]
    job = plain["jobs"][0]
    described = {name: SPEC[name] for name in plain} | {name: JOB[name] for name in job}
    for name, key in described.items():
        about = key.about.replace("|", "\\|")
        lines.append(f"| `{name}` | {about} |")
    if refusals:
        lines += ["", "`plan` refuses it as it is:", ""]
    for refusal in refusals:
        hint = f" Way out: {refusal.hint}." if refusal.hint else ""
        lines.append(f"* {refusal.message}.{hint}")
    at = job.get("remote_location") or job.get("new_savepoint_path") or "LOCATION"
    written = []
    doctor = ("stateshift doctor {spec}", "is all here that it needs?")
    for command, purpose in (doctor, *NEXT[goal]):
        line = command.format(spec=quote(file), at=quote(at))
        written.append(f"{line}{flags}   # {purpose}")
    lines += ["", "Next:", "", "```sh", *written, "```"]
    lines += ["", "`stateshift schema` prints every key; `stateshift COMMAND --help` its options."]
    return "\n".join(lines) + "\n"
