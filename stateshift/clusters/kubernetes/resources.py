"""Jobs that an operator of Kubernetes runs, each by a resource: what a resource says of itself, and
a cluster of them, as far as it does not matter whose operator it is.

    <state_dir>/<tag>.json            {"begun", "id": "flinkdeployment/orders" and "uid" once it is
                                      written, "location", "stopped"}
    <state_dir>/place.<cluster>.json  {"begun", "place": the server and the namespace}: whatever was
                                      begun in one is not looked for in another

A job's id is its resource: `flinkdeployment/orders`, or `orders` where only one kind has the name.
A job is started by one write of its resource, which carries our tag: it is made, or one that is
there is changed. A second attempt finds the first, whoever makes it.

Marks of ours: the label stateshift/tag, a digest of the tag; and the annotations stateshift/tag and
stateshift/location, the tag and the image of whom we started last.
"""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import ClassVar, Final, Generic, TypeVar

from stateshift.clusters.http import OTHER_FIELDS, Json, Refused
from stateshift.clusters.kind import Submit
from stateshift.clusters.kubernetes.calls import Definition, KubernetesCalls
from stateshift.clusters.kubernetes.capacity import nodes_of, placing, room_of
from stateshift.clusters.noted import Notes, Record, digest
from stateshift.clusters.options import TEXT, Options, read_options
from stateshift.clusters.placement import Container
from stateshift.clusters.protocol import (
    Fit,
    JobState,
    JobStatus,
    Room,
    Submission,
    UnknownAnswers,
)
from stateshift.clusters.waiting import wait_until_settled
from stateshift.errors import ClusterError, Complaint, SpecError
from stateshift.specification.options import KindOptions

TAG: Final = "stateshift/tag"
LOCATION: Final = "stateshift/location"
_SETTLE_SECONDS: Final = 60.0
_FORGOTTEN: Final = "its resource is gone: somebody has deleted it"
_REPLACED: Final = "another resource has its name, without a mark of ours"
_SUPERSEDED: Final = "its resource was started again under another tag"
_LIKE: Final = dict.fromkeys(("kubeconfig", "context", "namespace", "resource"), TEXT)
# Marks of tools that write a resource back as their repository has it.
_KEEPERS: Final[Mapping[str, str]] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "app.kubernetes.io/instance": "perhaps Argo CD",  # its own until 3.0, and Helm's as well
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as the API server has it."""

    definition: Definition
    plain: Json

    def for_start(self, submission: Submission, given: Options, spec: Json | None = None) -> Json:
        """Return the resource as it is written to start a job: with another spec, or its own."""
        raise NotImplementedError

    @property
    def id(self) -> str:
        return f"{self.definition.kind.lower()}/{self.name}"

    @property
    def metadata(self) -> Json:
        return dict(self.plain["metadata"])

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def spec(self) -> Json:
        return dict(self.plain.get("spec") or {})

    @property
    def status(self) -> Json:
        return dict(self.plain.get("status") or {})

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.get("annotations") or {}

    @property
    def uid(self) -> str | None:
        return self.metadata.get("uid")

    @property
    def generation(self) -> int:
        return int(self.metadata.get("generation") or 1)

    @property
    def is_job(self) -> bool:
        """Whether this is a job, and not only a place of jobs."""
        return True

    @property
    def spec_before(self) -> Json:
        """Return the spec as it was before we stopped its job."""
        return self.spec

    @property
    def is_deleting(self) -> bool:
        return "deletionTimestamp" in self.metadata

    @property
    def keeper(self) -> str | None:
        """Return the tool that keeps this resource as its repository has it."""
        marks = {**self.labels, **self.annotations}
        tools = [tool for mark, tool in _KEEPERS.items() if mark in marks]
        for owner in self.metadata.get("ownerReferences") or ():
            if owner.get("controller"):
                tools.insert(0, f"the controller of {owner.get('kind')} {owner.get('name')}")
        return next(iter(tools), None)

    def has_tag(self, tag: str, record: Record) -> bool:
        """Whether a job was started under this tag last. Somebody may have taken our marks off."""
        label, known = self.labels.get(TAG), self.annotations.get(TAG)
        if known is not None or label is not None:
            return known == tag if known is not None else label == digest(tag)
        return self.uid is not None and record.get("uid") == self.uid

    def with_spec(self, spec: Json, **annotations: str | None) -> Json:
        """Return the resource with another spec; an annotation that is None is taken away."""
        plain: Json = copy.deepcopy(self.plain)
        plain["spec"] = spec
        metadata = plain["metadata"]
        notes = {**(metadata.get("annotations") or {})}
        for name, value in annotations.items():
            notes[f"stateshift/{name}"] = value
        metadata["annotations"] = {key: value for key, value in notes.items() if value is not None}
        return plain


R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Start:
    """A job to start by its resource. `spec` is another's; None: the resource's own. `marks` are
    the labels and annotations of a manifest. `model` is where the spec was read, if from another.
    """

    definition: Definition
    name: str
    spec: Json | None
    submission: Submission
    given: Options
    marks: Json | None = None
    model: str | None = None

    @property
    def id(self) -> str:
        return f"{self.definition.kind.lower()}/{self.name}"


@dataclass(frozen=True)
class OperatedJobs(UnknownAnswers, ABC, Generic[R]):
    """A cluster of jobs that an operator runs. `options` are checked already."""

    name: str
    state_dir: Path
    options: Options
    interrupt: Event | None = None

    takes: ClassVar[KindOptions]
    kinds: ClassVar[Mapping[str, Definition]]  # by the kind in small letters
    optional: ClassVar[Definition]  # a server may lack this one
    merged: ClassVar[tuple[str, ...]]  # options of a submission that go over the cluster's own

    @abstractmethod
    def resource(self, definition: Definition, plain: Json) -> R:
        """Return a resource as one of this operator's."""

    @abstractmethod
    def status_of(self, resource: R, record: Record) -> JobStatus:
        """Return the status of a job of ours."""

    @abstractmethod
    def to_start(self, start: Start, resource: R | None) -> Json:
        """Return the resource to write, or refuse one that may have a job."""

    @abstractmethod
    def pods(self, resource: R) -> list[Container]:
        """Return the pods with which the job of this resource starts."""

    @property
    def kind(self) -> str:
        return self.takes.kind

    @cached_property
    def calls(self) -> KubernetesCalls:
        return KubernetesCalls(self.name, self.options, self.interrupt)

    @property
    def notes(self) -> Notes:
        return Notes(self.state_dir)

    def host(self, connection: str | None = None) -> str | None:
        return "kubernetes"

    def error(self, job: str, fact: str, hint: str | None = None) -> ClusterError:
        return ClusterError(fact, cluster=self.name, job=job, hint=hint)

    # ---- finding

    def find(self, tag: str) -> JobStatus:
        record = self.notes.read(tag) or {}
        id, settled = record.get("id"), 0.0
        if record and id is None:
            settle = float(self.options.get("settle_seconds", _SETTLE_SECONDS))
            settled = float(record["begun"]) + settle

        def look(over: bool) -> JobStatus | None:
            resource = self.tagged(tag, record)
            if resource is not None:
                if settled:
                    self.notes.add(tag, id=resource.id, uid=resource.uid)
                return self.status_of(resource, record)
            if id is None:
                return JobStatus(JobState.ABSENT) if over else None
            other = self.named(id)
            if other is not None and TAG in other.annotations:
                return JobStatus(JobState.FINISHED, id, _SUPERSEDED)
            if other is None and record.get("stopped"):
                return JobStatus(JobState.FINISHED, id, "stopped")
            return JobStatus(JobState.UNKNOWN, id, _FORGOTTEN if other is None else _REPLACED)

        return wait_until_settled(look, settled, self.interrupt) or JobStatus(JobState.ABSENT)

    def tagged(self, tag: str, record: Record) -> R | None:
        """Return the resource that was started last under this tag."""
        if record.get("id") is not None:
            known = self.named(str(record["id"]))
            found = [] if known is None else [known]
        else:
            found = self.each("", lambda kind: self.calls.every(kind, TAG, digest(tag)))
        return next((resource for resource in found if resource.has_tag(tag, record)), None)

    def each(self, kind: str, ask: Callable[[Definition], Sequence[Json | None]]) -> list[R]:
        """Return the answers for each kind of job; a server may lack one of them."""
        note = f"place.{self.name}"
        began = (self.notes.read(note) or {}).get("place", self.calls.place)
        if began != self.calls.place:  # a context may have been switched since
            fact = f"this was begun in {began}, and {self.name} leads to {self.calls.place} now"
            hint = 'name its "context" and "namespace" in the spec; if both names are of one server'
            raise self.error("", fact, f"{hint}: rm {self.notes.place(note)}")
        found: list[R] = []
        for definition in self.definitions(kind):
            try:
                answers = ask(definition)
            except Refused as refused:
                if kind or refused.status != 404 or definition is not self.optional:
                    raise
                answers = []
            found += [self.resource(definition, plain) for plain in answers if plain is not None]
        return found

    def write_down(self, tag: str, **more: object) -> None:
        """Note what is about to be asked for, and where."""
        self.notes.add(f"place.{self.name}", begun=time.time(), place=self.calls.place)
        self.notes.add(tag, begun=time.time(), **more)

    def named(self, id: str) -> R | None:
        """Return a job's resource; of a name that two kinds have, refuse to choose."""
        kind, _, name = id.rpartition("/")
        found = self.each(kind, lambda definition: [self.calls.get(definition, name)])
        if len(found) > 1:
            both = " and ".join(resource.id for resource in found)
            raise self.error(id, f"{name} is {both}", "name one of them with its kind")
        return found[0] if found else None

    def definitions(self, kind: str) -> tuple[Definition, ...]:
        if not kind:
            return tuple(self.kinds.values())
        if kind.lower() not in self.kinds:
            raise self.error(kind, f"{kind} is no kind of job", f"one of {', '.join(self.kinds)}")
        return (self.kinds[kind.lower()],)

    def known(self, id: str) -> R:
        """Return a job's resource, which has to be there."""
        resource = self.named(id)
        if resource is None or not resource.is_job:
            what = "is a session cluster, and no job" if resource is not None else "is not there"
            jobs = [each for each in self.each("", self.calls.every) if each.is_job]
            alive = [job.id for job in jobs if self.status_of(job, {}).state.alive]
            fact = f"{id} {what} ({self.calls.place})"
            raise self.error(id, fact, f"jobs that run there: {', '.join(alive) or 'none'}")
        return resource

    def same(self, first: R, stored: Json | None, way_out: str) -> R:
        """Return the resource as it is now: not another one of its name."""
        if stored is None or stored["metadata"].get("uid") != first.uid:
            what = "is gone" if stored is None else "is another one of that name by now"
            raise self.error(first.id, f"{first.id} {what}", way_out)
        return self.resource(first.definition, stored)

    # ---- starting

    def write_start(self, start: Start) -> str:
        """Start a job unless one has its tag, and return its id."""
        submission = start.submission
        self.write_down(submission.tag, location=submission.location)

        def decide(stored: Json | None) -> Json | None:
            resource = None if stored is None else self.resource(start.definition, stored)
            if resource is not None and resource.has_tag(submission.tag, {}):
                return None
            return self.to_start(start, resource)

        stored = self.calls.change(start.definition, start.name, decide) or {}
        uid = (stored.get("metadata") or {}).get("uid")
        self.notes.add(submission.tag, id=start.id, uid=uid)
        return start.id

    def make_new(self, start: Start) -> R:
        """Return a resource that the API server does not have yet, to start by another's spec."""
        if start.spec is None:
            fact = f"{start.id} is gone ({self.calls.place})"
            hint = "start it by its manifest, or like another"
            raise self.error(start.submission.job, fact, hint)
        namespace = self.calls.access.namespace
        new = new_resource(start.definition, start.name, namespace, start.marks)
        return self.resource(start.definition, new)

    def wanted(self, submission: Submission, given: Options) -> Start:
        """Return the resource to start: by its manifest, like another, or as it is there."""
        for option in self.merged:
            given = {
                **given,
                option: {**(self.options.get(option) or {}), **(given.get(option) or {})},
            }
        named = str(given.get("resource") or "")
        kind, _, name = named.rpartition("/")
        if "spec" in given and kind:
            return Start(self.definitions(kind)[0], name, given["spec"], submission, given)
        spec: Json | None = None
        marks: Json | None = None
        place: str | None = None
        if "manifest" in given:
            model = self.in_file(str(given["manifest"]))
            spec, marks = model.spec, model.metadata
        elif "like" in given:
            like = given["like"]
            options = dict(self.options)
            if {"kubeconfig", "context"} & like.keys():
                # Another context has another namespace, and another kubeconfig other contexts.
                options.pop("namespace", None)
                options.pop("context", None)
            options |= {key: value for key, value in like.items() if key != "resource"}
            source = replace(self, options=options, state_dir=self.state_dir / "like")
            model = source.known(str(like.get("resource", submission.job)))
            spec, place = model.spec_before, f"{model.id}, {source.calls.place}"
        else:
            model = self.known(named or submission.job)
        definition = model.definition
        if kind and self.definitions(kind)[0] is not definition:
            fact = f"{named} is of another kind than what it is to be like, {definition.kind}"
            raise self.error(submission.job, fact, 'leave the kind out of "resource"')
        return Start(definition, name or model.name, spec, submission, given, marks, place)

    def room(self) -> Room:
        return room_of(nodes_of(self.calls))

    def addresses(self) -> frozenset[str]:
        return frozenset({self.calls.access.server})

    def fitting(self, until: float) -> Callable[[Submission], Fit]:
        place = placing(self.calls, until)

        def fit(submission: Submission) -> Fit:
            given = read_options(submission.options, self.takes.submit, "/submit")
            start = self.wanted(submission, given)
            stored = self.calls.get(start.definition, start.name)
            new = (
                self.make_new(start) if stored is None else self.resource(start.definition, stored)
            )
            new = self.resource(
                start.definition, new.for_start(submission, start.given, start.spec)
            )
            return place(self.pods(new), new.spec)

        return fit

    def in_file(self, path: str) -> R:
        """Return the job in a file, with its labels and annotations, or raise ClusterError."""
        import yaml

        namespace = self.calls.access.namespace
        try:
            plain = yaml.safe_load(Path(path).read_text("utf-8"))
            definition = self.kinds[str(plain["kind"]).lower()]
            if plain["apiVersion"] != definition.api:
                raise ValueError(definition.api)
            metadata = dict(plain["metadata"])
            kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
            kept["name"] = str(metadata["name"])
            resource = self.resource(definition, {"metadata": kept, "spec": dict(plain["spec"])})
            if not resource.is_job:
                raise ValueError("no job")
        except (OSError, yaml.YAMLError, *OTHER_FIELDS) as error:
            fact = f"{path} is no manifest of a job ({type(error).__name__})"
            *others, last = [f"one {each.kind}" for each in self.kinds.values()]
            kinds = f"{', '.join(others)} or {last.removeprefix('one ')}" if others else last
            hint = f'"manifest" is a file with {kinds} of {next(iter(self.kinds.values())).version}'
            raise ClusterError(fact, hint=hint) from error
        if metadata.get("namespace", namespace) != namespace:
            fact = f"{path} is for the namespace {metadata['namespace']}, and not for {namespace}"
            raise ClusterError(fact, hint='correct it, or the "namespace" of the cluster')
        return resource


def new_resource(
    definition: Definition, name: str, namespace: str, marks: Json | None = None
) -> Json:
    """Return a resource that the API server does not have yet; `marks` are more of its metadata."""
    metadata = {**(marks or {}), "name": name, "namespace": namespace}
    return {"apiVersion": definition.api, "kind": definition.kind, "metadata": metadata}


def checked_submit(submit: Submit, takes: KindOptions) -> Options:
    """Return the options of a submission, or refuse what would be refused only once the old job has
    been stopped.
    """
    given = read_options(submit.options, takes.submit, submit.pointer)
    read_options(given.get("like") or {}, _LIKE, f"{submit.pointer}/like")
    if submit.connection:
        place = f"{submit.pointer.rpartition('/')[0]}/remote_connection"
        fact = "a job is started by its resource, and not at an address"
        expected = 'none: "context" and "namespace" of the cluster say where'
        raise SpecError((Complaint(place, fact, submit.connection, expected),))
    return given
