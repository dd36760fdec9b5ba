"""Whether all is here that a run needs: this machine, storages, clusters, brokers.

    examine(subjects, adapters)  -> a Check at a time, in the order in which a person reads them
    Subjects                     what a spec names, and what is named without one

Nothing stays behind. Rights are tried with one file beside the engine's own, whose name says
what it is (`scratch_name`), and which no other doctor has: no engine reads a name that begins with
an underscore. It is removed again, also by Ctrl-C; one that a kill has left is removed by a later
doctor on the same host, if it holds what a doctor writes and is minutes old. A directory that is
not there yet is not made: there the storage is only asked.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import cast

from stateshift.api.environment import (
    PACKAGE,
    Requirement,
    installed_version,
    java_version,
    requirements,
)
from stateshift.clusters.protocol import TellsRoom
from stateshift.documents.begin import Check, State
from stateshift.errors import AlreadyThere, StateshiftError, StorageError
from stateshift.migration import Adapters, impatient, read_rules, trusted_keys, with_second_try
from stateshift.specification import ClusterSpec, KafkaSpec, Spec
from stateshift.specification.location import scheme
from stateshift.specification.options import options_of
from stateshift.storage.locations import normal
from stateshift.storage.protocol import Storage
from stateshift.survey import FileInfo
from stateshift.workdir import Workdir

# Told of each thing before it is asked.
Trying = Callable[[str], None]

FULL_BYTES, SCARCE_BYTES = 64 << 20, 1 << 30
SKEW_SECONDS, SKEW_SECONDS_MAX = 30.0, 300.0
SLOW_SECONDS = 2.0
# A place that gives no answer for so long is not waited for.
ANSWER_SECONDS = 10.0
# How many files are looked through for those that another doctor has left, and their age.
FILES_MAX, LEFT_SECONDS = 200, 300.0
SCRATCH = "_stateshift-doctor-"
_WORD = re.compile(r"[^A-Za-z0-9.-]")
CONTENT = b"stateshift doctor tried whether it may write here. Nobody needs this file.\n"
# The extras by which the kinds of storage are opened, and the client of Kafka.
EXTRA_OF = {"s3": "s3", "gs": "gcs", "abfs": "abfs"}
# Spark's documentation, "Downloading": 3.3 to 3.5 run on Java 8, 11 and 17, 4.x on 17 and later.
JAVA_MAX_OF_SPARK_3, JAVA_MIN_OF_SPARK_4 = 17, 17


@dataclass(slots=True)
class Subjects:
    """The subjects of a look: locations, and whether a run writes there; those of them that hold
    an image already; clusters by name; brokers.
    """

    locations: dict[str, bool] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)
    clusters: dict[str, ClusterSpec] = field(default_factory=dict)
    brokers: dict[KafkaSpec, None] = field(default_factory=dict)

    def add_locations(self, locations: Iterable[str], writes: bool) -> None:
        for location in locations:
            self.locations[location] = writes or self.locations.get(location, False)

    def add_spec(self, spec: Spec) -> None:
        """Add everything outside that a spec names."""
        self.clusters |= {cluster.name: cluster for cluster in spec.clusters}
        for job in spec.jobs:
            # The fence is written at the source. The folder of a Flink job is Flink's to write.
            fences = job.fences_source and job.flink is None and spec.restart
            self.add_locations([job.source], fences)
            self.add_locations(job.merge_locations, False)
            if job.flink is None or job.source_cluster is None:  # else its savepoint is to be made
                self.sources |= {job.source, *job.merge_locations}
            self.add_locations([data.source for data in job.data], False)
            self.add_locations([source.location for source in job.sources], False)
            self.add_locations(job.copy_targets if job.target else (), True)
            if job.kafka is not None:
                for kafka in (job.kafka, job.kafka.turned):
                    self.brokers[KafkaSpec(kafka.bootstrap_servers, kafka.properties)] = None


def examine(
    subjects: Subjects, workdirs: str, adapters: Adapters, trying: Trying
) -> Iterator[Check]:
    """Yield the checks of this machine, then of each location, cluster and broker."""
    schemes = {scheme(location) for location in subjects.locations}
    needed = {EXTRA_OF[each] for each in schemes if each in EXTRA_OF}
    needed |= {"kafka"} if subjects.brokers else set()
    yield from examine_packages(requirements(), needed)
    launchers = [each for each in subjects.clusters.values() if each.kind == "spark_submit"]
    homes = {each.options.get("java_home") for each in launchers}
    for home in sorted(homes or {None}, key=str):
        yield _java(bool(launchers), home if isinstance(home, str) else None)
    yield from examine_policies(adapters)
    adapters = impatient(adapters)
    here = normal(workdirs, os.getcwd())
    for location, writes in {here: True, **subjects.locations}.items():
        is_source = location in subjects.sources
        yield from examine_storage(location, writes, adapters, trying, is_source)
    for cluster in subjects.clusters.values():
        trying(f"cluster {cluster.name} ({cluster.kind})")
        yield from _examine_cluster(cluster, workdirs, adapters)
    for brokers in subjects.brokers:
        trying(f"brokers {brokers.bootstrap_servers}")
        yield _brokers(brokers, adapters)


# -------------------------------------------------------------------------- this machine


def examine_packages(
    required: list[Requirement],
    needed: set[str],
    version_of: Callable[[str], str | None] = installed_version,
) -> Iterator[Check]:
    """Yield whether the packages are there that every run needs, and those of `needed` extras; at
    last the versions of the extras that are installed.
    """
    extras: dict[str, str] = {}
    for each in required:
        version = version_of(each.name)
        wanted = f"{each.name}>={each.at_least}" if each.at_least else each.name
        install = f"'{PACKAGE}[{each.extra}]'" if each.extra else f"'{wanted}'"
        is_needed = each.extra is None or each.extra in needed
        is_old = version is not None and _numbers(version) < _numbers(each.at_least)
        if version is not None and each.extra is not None:
            extras[each.name] = version
        if is_needed and version is None:
            fact = f"{wanted} is not installed"
            yield Check("packages", each.name, "fail", fact, f"pip install {install}")
        elif is_old:
            fact = f"{version} is installed, and {wanted} is needed"
            state: State = "fail" if is_needed else "warn"
            yield Check("packages", each.name, state, fact, f"pip install -U {install}")
    listed = ", ".join(f"{name} {version}" for name, version in sorted(extras.items()))
    yield Check("packages", "extras", "ok", listed or "none are installed")
    python = ".".join(map(str, sys.version_info[:3]))
    own = version_of(PACKAGE) or "not installed as a package"
    yield Check("packages", PACKAGE, "ok", f"{own}, Python {python}")


def examine_policies(adapters: Adapters) -> Iterator[Check]:
    """Yield whether each file of rules can be read: with a mistake in one no run begins."""
    try:
        for path in adapters.policies():
            rules, _ = read_rules(path)
            for rule in rules:
                trusted_keys(rule, path)
            names = ", ".join(rule.name for rule in rules) or "none"
            yield Check("policy", path, "ok", f"its rules: {names}")
    except StateshiftError as error:
        yield Check("policy", "rules", "fail", error.fact, error.hint)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _java(is_needed: bool, home: str | None) -> Check:
    """Return whether a Java of this machine fits the Spark that is installed here."""
    version, spark = java_version(home), installed_version("pyspark") or ""
    hint = f"export JAVA_HOME=…   # Java {JAVA_MIN_OF_SPARK_4}"
    state: State = "fail" if is_needed else "warn"
    if version is None:
        fact = "no Java (JAVA_HOME, PATH): spark-submit, fleets, drills and `check` need one"
        return Check("java", "Java", state, fact, hint)
    numbers = _numbers(version.removeprefix("1."))
    if not numbers or version.startswith("unknown"):
        return Check("java", "Java", "warn", version, hint)
    is_new = spark[:1].isdigit() and int(spark.partition(".")[0]) >= 4
    too_old = is_new and numbers[0] < JAVA_MIN_OF_SPARK_4
    too_new = not is_new and spark and numbers[0] > JAVA_MAX_OF_SPARK_3
    if too_old or too_new:
        fact = f"Spark {spark} of this machine does not run on Java {version}"
        return Check("java", "Java", state, fact, hint)
    return Check("java", "Java", "ok", version)


# -------------------------------------------------------------------------- storages


def scratch_name(host: str, own: str) -> str:
    """Return the name of the file by which rights are tried; no other doctor has the `own` part."""
    return f"{SCRATCH}{_WORD.sub('-', host)}-{own}-may-be-deleted"


def _reached(location: str, name: str, adapters: Adapters) -> Storage:
    """Return a storage that answers soon: a dead host, or mount, may take minutes, and not end."""
    answers: list[Storage | Exception] = []

    def ask() -> None:
        try:
            storage = adapters.open_storage(location)
            storage.stat(name)
            answers.append(storage)
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if not answers:
        fact = f"gives no answer within {ANSWER_SECONDS:g} s"
        raise StorageError(fact, location=location, hint="is it up, and reached from here?")
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def examine_storage(
    location: str, writes: bool, adapters: Adapters, trying: Trying, is_source: bool = False
) -> Iterator[Check]:
    """Yield the rights at a location, each with its time, the free space and the clock. A source
    without files is none.
    """
    now = adapters.clock.now
    own = f"{os.getpid()}-{os.urandom(4).hex()}"
    name = scratch_name(adapters.host, own)
    trying(f"list {location}")
    began = now()
    try:
        storage = _reached(location, name, adapters)
        files = list(islice(storage.list(), FILES_MAX))
        if is_source and not files:
            hint = "it is to be moved: check the path, and where this machine sees it from"
            yield Check("list", location, "fail", "nothing is there", hint)
            return
        yield _timed("list", location, now() - began, "" if files else "nothing is there yet, ")
    except StateshiftError as error:
        yield _failed("list", location, error)
        return
    storage = with_second_try(storage, adapters.clock)
    # Another doctor may remove its own at any time.
    lasting = [file for file in files if not file.path.startswith(SCRATCH)]
    if lasting:
        trying(f"read {lasting[0].path} at {location}")
        began = now()
        try:
            next(iter(storage.chunks(lasting[0].path, size=lasting[0].size)), b"")
            yield _timed("read", location, now() - began)
        except StateshiftError as error:
            yield _failed("read", location, error)
    if not writes:
        return
    yield from _space(storage)
    # A directory that is not there would have to be made, and its parents with it.
    if files or not storage.traits.owners:
        yield from _left_by_others(storage, files, adapters)
        trying(f"create {name} at {location}")
        yield from _tried(storage, name, CONTENT + own.encode(), adapters)
    elif storage.writable() is False:
        fact = "no directory, and no file, may be made there"
        hint = f"let this user write at {location}; with --fork a source is only read"
        yield Check("create", location, "fail", fact, hint)
    else:
        fact = "not tried, as nothing is there yet: its permissions allow it"
        yield Check("create", location, "ok", fact)


def _space(storage: Storage) -> Iterator[Check]:
    try:
        room = storage.room()
    except StateshiftError as error:
        yield _failed("space", storage.location, error)
        return
    free = room.bytes_free
    state: State = "ok"
    if free is None and room.files_free is None:
        return
    said = f"{free / (1 << 30):,.1f} GiB are free" if free is not None else "no limit of bytes"
    if room.files_free == 0 or (free is not None and free < FULL_BYTES):
        state, said = "fail", f"full: {said}, room for {room.files_free} more files"
    elif free is not None and free < SCARCE_BYTES:
        state = "warn"
    hint = None if state == "ok" else "free space there, or name another place"
    yield Check("space", storage.location, state, said, hint)


def _left_by_others(
    storage: Storage, files: Iterable[FileInfo], adapters: Adapters
) -> Iterator[Check]:
    """Remove what a doctor of this host has left that was killed; yield who else's is there."""
    now = adapters.clock.now
    host = re.escape(_WORD.sub("-", adapters.host))
    mine = re.compile(rf"{SCRATCH}{host}-[0-9]+-[0-9a-f]{{8}}-may-be-deleted\Z")
    for file in files:
        if not file.path.startswith(SCRATCH):
            continue
        is_old = bool(file.modified) and now() - file.modified > LEFT_SECONDS
        with suppress(StateshiftError):
            written = storage.read(file.path, size_max=1024)
            if is_old and mine.match(file.path) and written.startswith(CONTENT):
                storage.remove(file.path)
                continue
        fact = f"{file.path} is there, of another doctor that runs, or was killed"
        hint = f"if none runs, remove {file.path}"
        yield Check("create", storage.location, "warn", fact, hint)


def _tried(storage: Storage, name: str, content: bytes, adapters: Adapters) -> Iterator[Check]:
    """Yield the checks of a file that is created, created again, read, and removed."""
    now, place = adapters.clock.now, storage.location
    checks, right, may_be_there, began = list[Check](), "create", True, now()
    try:
        storage.create(name, content)
        checks.append(_timed(right, place, now() - began))
        written = storage.stat(name)
        if written is not None and written.modified:
            checks.append(_clock(place, written.modified - now()))
        with suppress(AlreadyThere):  # not the same: a create that is tried again finds its own
            storage.create(name, content + b" again")
            fact = "a second create of the same file succeeds: two runs could hold one target"
            checks = [Check(right, place, "fail", fact, "use a storage with conditional writes")]
        right = "read"
        if storage.read(name) not in (content, content + b" again"):
            fact = "a file that was just written is read otherwise"
            checks.append(Check(right, place, "fail", fact, "use a storage that is consistent"))
        right, began = "delete", now()
        storage.remove(name)
        may_be_there = storage.stat(name) is not None
        if may_be_there:
            raise StorageError(f"{name} is still there once it was removed")
        checks.append(_timed(right, place, now() - began))
    except StateshiftError as error:
        hint = hint_without_run(error) or f"let this user write and delete at {place}"
        left = f"; remove {name}" if right == "delete" else ""
        checks.append(Check(right, place, "fail", str(error), hint + left))
    finally:
        if may_be_there:
            with suppress(StateshiftError):
                storage.remove(name)
    yield from checks


def _clock(place: str, ahead: float) -> Check:
    if abs(ahead) <= SKEW_SECONDS:
        return Check("clock", place, "ok", f"within {SKEW_SECONDS:g} s of this machine's")
    side = "ahead of" if ahead > 0 else "behind"
    fact = f"its clock is {abs(ahead):,.0f} s {side} this machine's"
    state: State = "fail" if abs(ahead) > SKEW_SECONDS_MAX else "warn"
    hint = "set both clocks by NTP: ages of files and the bounds of a standby are measured by them"
    return Check("clock", place, state, fact, hint)


def _timed(check: str, subject: str, seconds: float, before: str = "") -> Check:
    if seconds <= SLOW_SECONDS:
        return Check(check, subject, "ok", f"{before}{seconds:.2f} s")
    hint = "run stateshift nearer to it, or with --fleet"
    return Check(check, subject, "warn", f"{before}slow: {seconds:.1f} s", hint)


def _failed(check: str, subject: str, error: StateshiftError) -> Check:
    return Check(check, subject, "fail", str(error), hint_without_run(error))


_OF_RUNS = re.compile(r"[,;:.]?\s*([Tt]hen|a run goes on with)?:?\s*`?stateshift resume WORKDIR.*")


def hint_without_run(error: StateshiftError) -> str | None:
    """Return the hint of an error as far as it holds where no run is."""
    return _OF_RUNS.sub("", error.hint or "") or None


# -------------------------------------------------------------------------- clusters and brokers


def _examine_cluster(spec: ClusterSpec, workdirs: str, adapters: Adapters) -> Iterator[Check]:
    """Yield whether a cluster answers, with which version, and its free slots."""
    now = adapters.clock.now
    began = now()
    subject = f"{spec.name} ({spec.kind})"
    known, options = options_of(spec.kind).cluster, dict(spec.options)
    for name, most in (("request_seconds", ANSWER_SECONDS), ("outage_seconds", 0.0)):
        if name in known:
            options[name] = min(most, float(str(options.get(name, most))))
    try:
        quick = replace(spec, options=options)
        cluster = adapters.open_cluster(quick, Workdir(os.path.join(workdirs, "doctor")))
        # Its version may be left out without an answer.
        for question in ("alive", "occupants", "executable"):
            if hasattr(cluster, question):
                getattr(cluster, question)()
        version = cluster.version()
        answered = _timed("cluster", subject, now() - began)
        slots = cluster.slots() if hasattr(cluster, "slots") else None
    except StateshiftError as error:
        yield _failed("cluster", subject, error)
        return
    if version is None:
        hint = f'give {spec.name} its "version"; `plan` compares it with that of the image'
        yield Check("cluster", subject, "warn", "does not tell its version", hint)
    else:
        yield replace(answered, fact=f"{version}, {answered.fact}")
    if slots is not None:
        grows = slots.adaptive or slots.on_demand
        fact = f"{slots.free} of {slots.all} slots are free"
        state: State = "ok" if slots.free or grows else "warn"
        waits = "a job that is started there waits for slots"
        yield Check("slots", subject, state, fact, None if state == "ok" else waits)
    if hasattr(cluster, "room"):
        yield _room_on(cast(TellsRoom, cluster), subject)


def _room_on(cluster: TellsRoom, subject: str) -> Check:
    """Return the free cores and memory of a cluster of many machines, as far as it tells them."""
    try:
        room = cluster.room()
    except StateshiftError as error:
        return Check("room", subject, "warn", error.fact, hint_without_run(error))
    memory_free, memory = (count / 1024 for count in (room.memory_free, room.memory))
    fact = f"{room.cores_free:g} of {room.cores:g} cores and {memory_free:.1f} of {memory:.1f} GiB "
    fact += "of memory are free"
    is_full = room.cores_free <= 0 or room.memory_free <= 0
    waits = "a job that is started there waits for room"
    return Check("room", subject, "warn" if is_full else "ok", fact, waits if is_full else None)


def _brokers(kafka: KafkaSpec, adapters: Adapters) -> Check:
    now = adapters.clock.now
    began = now()
    try:
        adapters.ask_topics(kafka, ())
    except StateshiftError as error:
        return _failed("brokers", kafka.bootstrap_servers, error)
    return _timed("brokers", kafka.bootstrap_servers, now() - began)
