"""The jobs of a run as events of OpenLineage, with their sources and targets, sent by HTTP.

    START      the run begins, or begins again after such an end; RUNNING if it was cut short
    COMPLETE   the job is moved from its source, the input, to its target, the output
    FAIL       it is not, and the facet `errorMessage` says why
    ABORT      the run was interrupted, or taken back

A run of OpenLineage is a job of ours until such an end: a kill and a resume do not change its id.

Events: spec/OpenLineage.json 2-0-2, and spec/facets. Datasets: spec/Naming.md. Variables:
transport/http.py of its Python client; OPENLINEAGE_PARENT_ID, `namespace/job/run`, is dbt-ol's.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urljoin

from stateshift import __version__, journal
from stateshift.clusters.redaction import redact
from stateshift.errors import Interrupted, StateshiftError
from stateshift.journal import Record
from stateshift.migration.context import RunContext
from stateshift.notification.notifier import PAUSES, NotSent, post
from stateshift.report import summarize
from stateshift.storage import locations

PRODUCER = f"https://github.com/stateshift/stateshift/tree/v{__version__}"
# A namespace has the one name of the service, and the key of an object no slash before it.
OBJECT_STORES = {"s3": "s3", "gs": "gs", "abfs": "abfss", "wasb": "wasbs", "wasbs": "wasbs"}
ENDS = (journal.RunFailed, journal.RunFinished, journal.RunRolledBack, journal.RollbackRefused)
SECONDS_TO_ANSWER = 3.0

Object = dict[str, object]


@dataclass(frozen=True, slots=True)
class Collector:
    """The receiver of events, and what the environment says of this run."""

    url: str
    api_key: str
    namespace: str
    parent: Object  # a facet, or none


def collector_of(environment: Mapping[str, str]) -> Collector | None:
    """Return the collector that the environment names, None if it names none."""

    def value(name: str, default: str = "") -> str:
        return environment.get(f"OPENLINEAGE_{name}", "").strip() or default

    url = value("URL")
    if not url or value("DISABLED").lower() == "true":
        return None
    if not url.startswith(("http://", "https://")):
        raise ValueError("OPENLINEAGE_URL is not of HTTP, as it has to be")
    url = urljoin(url, value("ENDPOINT", "api/v1/lineage"))
    parent = _parent(value("PARENT_ID"))
    return Collector(url, value("API_KEY"), value("NAMESPACE", "default"), parent)


def _parent(text: str) -> Object:
    """Return the facet of a parent, such as `airflow/nightly.move/UUID`; none if it is not that."""
    *namespace, job, run = ("", *text.rsplit("/", 2))
    try:
        run_id = str(uuid.UUID(run))
    except ValueError:
        return {}
    of_job = {"namespace": "".join(namespace), "name": job}
    return {"parent": _facet("1-2-0/ParentRunFacet", run={"runId": run_id}, job=of_job)}


def dataset_of(location: str) -> Object:
    """Return the dataset of a location, by OpenLineage's rules of naming."""
    place = locations.parse(locations.redact(location))
    if place.scheme == "file":
        return {"namespace": "file", "name": place.path}
    scheme, name = OBJECT_STORES.get(place.scheme), place.path.rstrip("/")
    authority = place.authority
    if scheme not in ("abfss", "wasbs"):  # before @ is a user, and no container
        authority = authority.rpartition("@")[2]
    name = name.lstrip("/") if scheme else name
    return {"namespace": f"{scheme or place.scheme}://{authority}", "name": name or "/"}


def _facet(schema: str, **values: object) -> Object:
    name = schema.partition("/")[2]
    url = f"https://openlineage.io/spec/facets/{schema}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url, **values}


class RunLineage:
    """The events of one process's work on a run."""

    name = "lineage events"

    def __init__(self, collector: Collector, context: RunContext, records: list[Record]) -> None:
        self._collector, self._run = collector, context
        ended_at, attempt, begins = 0.0, 0, 0
        for record in records:  # this process's own begin is among them, but for a rollback's
            if isinstance(record, ENDS):
                ended_at, attempt, begins = record.at, attempt + 1, 0
            begins += isinstance(record, journal.RunStarted | journal.RunResumed)
        self._attempt = attempt
        progress = context.progress
        done = {job.job for job in summarize(progress).jobs if job.state == "finished"}
        for plan in progress.known:  # a process that was killed has told of no end
            if (plan.finished_at or 0.0) > ended_at:
                done.discard(plan.job)
        self._jobs = [name for name in progress.jobs if name not in done]
        is_way_back = progress.state == "rolling-back"
        if is_way_back and not begins:
            self._jobs = []  # its end was told
        self._events: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        self._failure = ""
        self._sender = threading.Thread(target=self.send_all, name="lineage", daemon=True)
        self._sender.start()
        for name in () if is_way_back else self._jobs:
            self._put("START" if begins == 1 else "RUNNING", name)

    def close(self, ended_by: BaseException | None) -> None:
        """Send the end of each job."""
        why = ended_by.fact if isinstance(ended_by, StateshiftError) else type(ended_by).__name__
        jobs = {job.job: job for job in summarize(self._run.progress).jobs}
        for name in self._jobs:
            job = jobs.get(name)
            if job is not None and job.state == "finished":
                self._put("COMPLETE", name, size=job.bytes, fileCount=job.files)
            elif ended_by is None or isinstance(ended_by, Interrupted):
                self._put("ABORT", name)
            else:
                message = why if job is None or job.failure is None else job.failure.message
                self._put("FAIL", name, locations.redact(redact(message, os.environ)))
        self._events.put(None)

    def unsent(self, seconds: float) -> str:
        """Wait so long; return why not all of it was sent."""
        self._sender.join(seconds)
        return self._failure or ("the collector takes too long" if self._sender.is_alive() else "")

    def _put(self, kind: str, name: str, why: str = "", **written: int) -> None:
        run, spec, collector = self._run.progress, self._run.job(name), self._collector
        facets = dict(collector.parent)
        if why:
            error = {"message": why, "programmingLanguage": "PYTHON"}
            facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", **error)
        output = dataset_of(spec.target or spec.source)
        if written:
            statistics = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", **written)
            output["outputFacets"] = {"outputStatistics": statistics}
        named = f"stateshift {run.run} {run.began} {name} {self._attempt}"
        event: Object = {
            "eventType": kind,
            "eventTime": datetime.fromtimestamp(self._run.now(), UTC).isoformat(),
            "producer": PRODUCER,
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {"runId": str(uuid.uuid5(uuid.NAMESPACE_URL, named)), "facets": facets},
            "job": {"namespace": collector.namespace, "name": f"stateshift.{name}"},
            "inputs": [dataset_of(each) for each in (spec.source, *spec.merge_locations)],
            "outputs": [output],
        }
        self._events.put(event)

    def send_all(self) -> None:
        pauses, event = list(PAUSES), self._events.get()
        while event is not None:
            try:
                post(self._collector.url, event, SECONDS_TO_ANSWER, self._collector.api_key)
            except NotSent as error:
                if error.again and pauses:  # a dead collector gets them once
                    time.sleep(pauses.pop(0))
                    continue
                self._failure = str(error)
            except Exception as error:  # without its text: a URL may be a part of that
                self._failure = type(error).__name__
            else:
                pauses = list(PAUSES)
            event = self._events.get()
