"""How the outside is reached: the adapters of storages and clusters are opened here, and nowhere
above.
"""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stateshift import machine
from stateshift.clusters.protocol import Cluster
from stateshift.clusters.redaction import redact, redact_words
from stateshift.engines.registry import Entries, Transforms, engine
from stateshift.journal import Invocation, Progress
from stateshift.migration.processes import Processes
from stateshift.migration.submit_corrections import corrections
from stateshift.specification import ClusterSpec, KafkaSpec, Spec
from stateshift.specification.job_relations import unsynced_locations
from stateshift.specification.standby import places_fed
from stateshift.step import Fleet
from stateshift.step.claims import refuse_another
from stateshift.storage import locations
from stateshift.storage.opening import SystemClock, open_patiently, open_storage
from stateshift.storage.protocol import Storage
from stateshift.storage.wrappers import (
    Guarded,
    Pace,
    Patience,
    Retrying,
    Sparing,
    StoppedPace,
    Throttled,
    Unsynced,
)
from stateshift.survey import TopicRecord
from stateshift.workdir import Workdir
from stateshift.world import (
    Claimed,
    Clock,
    ConsumerGroups,
    Fencing,
    Meter,
    OpenGroups,
    Spared,
    Unwatched,
    World,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from stateshift.fleet.carrier import Carrier
    from stateshift.fleet.crew import Crew, OpenFleet
    from stateshift.sources.topic_positions import OpenTopics
    from stateshift.sources.topic_search import TopicReader

# How many steps run at once where nobody says it.
PARALLEL = 4
COMMAND_MAX = 2000
# Options whose values are commands of a person, which may hold anything: the spec has them.
WITH_COMMANDS = ("--start", "--stop", "--restart")

# (how many, what is shown, set once somebody asked to stop)
OpenProcesses = Callable[[int, Meter, threading.Event], Processes]
# The spans of topics at these brokers: partition -> (first offset, the one after the last); nothing
# for a topic that is not there.
AskTopics = Callable[[KafkaSpec, Sequence[str]], Mapping[str, Mapping[int, tuple[int, int]]]]
# The records around these offsets, at brokers that a file of properties says how to reach.
AskRecords = Callable[
    [str, str | None, Mapping[str, Mapping[int, int]]],
    Mapping[str, Mapping[int, tuple[TopicRecord, ...]]],
]


class Gauge(NamedTuple):
    """One value of a metric of a run."""

    name: str
    help: str
    value: float
    labels: tuple[tuple[str, str], ...]


# (the run's workdir, what has happened, whether it is at work, now)
MeasureRun = Callable[[Workdir, Progress, bool, float], Iterable[Gauge]]


def ask_kafka(
    spec: KafkaSpec, topics: Sequence[str]
) -> Mapping[str, Mapping[int, tuple[int, int]]]:
    """Ask the brokers themselves. Their client is not imported before."""
    from stateshift.sources.kafka import spans

    return spans(spec.bootstrap_servers, spec.properties, topics)


def read_kafka(
    brokers: str, properties: str | None, offsets: Mapping[str, Mapping[int, int]]
) -> Mapping[str, Mapping[int, tuple[TopicRecord, ...]]]:
    """Read records from the brokers themselves, likewise."""
    from stateshift.sources.kafka import records

    return records(brokers, properties, offsets)


def open_kafka(brokers: str, properties: str | None) -> AbstractContextManager[TopicReader]:
    """Connect to brokers, likewise."""
    from stateshift.sources.kafka import open_topics

    return open_topics(brokers, properties)


def open_kafka_groups(
    brokers: str, properties: str | None
) -> AbstractContextManager[ConsumerGroups]:
    """Connect to brokers for their consumer groups, likewise."""
    from stateshift.sources.kafka import open_groups

    return open_groups(brokers, properties)


def open_fleet(master: str, log: Path, meter: Meter, stop: threading.Event) -> Carrier:
    """Start a Spark application. Nothing of Spark is imported before."""
    from stateshift.fleet.spark import open_carrier

    return open_carrier(master, log, meter, stop)


def open_processes(count: int, meter: Meter, stop: threading.Event) -> Processes:
    """Return so many processes of this machine. None is started before it is needed."""

    def crew() -> Crew:
        from stateshift.fleet.carrier import OF_THIS_MACHINE
        from stateshift.fleet.crew import Crew
        from stateshift.fleet.processes import ProcessCarrier

        together = machine.together()
        if count < machine.cores() and count == machine.fitting(machine.PROCESS_BYTES, together):
            meter.say(
                f"processes: {count} at once, of {machine.cores()} cores: {together >> 20} MiB are "
                f"for all (STATESHIFT_MEMORY), and {machine.PROCESS_BYTES >> 20} MiB for each"
            )
        return Crew(ProcessCarrier(count, stop, together, meter.say), meter, OF_THIS_MACHINE)

    return Processes(crew)


def no_policies() -> tuple[str, ...]:
    """Return no file of rules."""
    return ()


def measure_nothing(_place: Workdir, _done: Progress, _at_work: bool, _now: float) -> tuple[()]:
    """Return no metric."""
    return ()


@dataclass(frozen=True)
class Adapters:
    """How the outside is reached. Tests put in-memory twins here; nothing else has to be
    patched. Twins of storages have no `open_processes`: processes open theirs by location.
    """

    open_storage: Callable[[str], Storage]
    open_cluster: Callable[[ClusterSpec, Workdir], Cluster]
    clock: Clock
    meter: Meter = field(default_factory=Unwatched)
    stop: threading.Event = field(default_factory=threading.Event)
    host: str = "localhost"
    boot: str = ""
    by: Invocation | None = None  # the command that this process carries out
    policies: Callable[[], tuple[str, ...]] = no_policies  # files of rules, for new runs
    signed_by: tuple[str, ...] = ()  # public keys: one has signed the plan of a new run
    measure: MeasureRun = measure_nothing  # what a collector is sent of a run
    open_fleet: OpenFleet = open_fleet
    open_processes: OpenProcesses | None = None
    fleet: Fleet | None = None
    ask_topics: AskTopics = ask_kafka
    ask_records: AskRecords | None = None
    open_topics: OpenTopics = open_kafka
    open_groups: OpenGroups = open_kafka_groups


def real_adapters(meter: Meter | None = None, stop: threading.Event | None = None) -> Adapters:
    """Return the real adapters: storages by URL, with retries; clusters by their kind."""
    interrupt = stop or threading.Event()
    watched = meter or Unwatched()

    def cluster(spec: ClusterSpec, workdir: Workdir) -> Cluster:
        # Nobody waits for this import without a cluster.
        from stateshift.clusters.kind import Contacts, open_cluster

        contacts = Contacts(open_patiently, say=watched.say, interrupt=interrupt)
        return open_cluster(spec, str(workdir.path), contacts)

    host = socket.gethostname()
    return Adapters(
        open_patiently,
        cluster,
        SystemClock(),
        watched,
        interrupt,
        host,
        boot=machine.boot(),
        by=invocation(host),
        open_processes=open_processes,
        ask_records=read_kafka,
    )


def invocation(host: str, words: Sequence[str] = ()) -> Invocation:
    """Return a command, without its secrets, as given by the user of this process."""
    kept, flag = list[str](), ""
    for word in words:
        flag_before, flag = flag, word.partition("=")[0]
        if flag_before in WITH_COMMANDS:
            word, flag = "...", ""
        elif flag in WITH_COMMANDS and flag != word:
            word, flag = f"{flag}=...", ""
        kept.append(word)
    clean = [locations.redact(redact(word, os.environ)) for word in redact_words(kept)]
    command = _printable(shlex.join(clean))
    if len(command) > COMMAND_MAX:
        command = f"{command[:COMMAND_MAX]}…"
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user has no name
        user = str(os.getuid())
    return Invocation(user, host, command, _printable(os.environ.get("SUDO_USER", "")))


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def impatient(adapters: Adapters) -> Adapters:
    """Return the same adapters; what they open fails at the first sign, and lists as it goes."""
    is_patient = adapters.open_storage is open_patiently
    return replace(adapters, open_storage=open_storage) if is_patient else adapters


def interruptible(adapters: Adapters, stop: threading.Event) -> Adapters:
    """Return the same adapters; what they open is read and written no more once `stop` is set."""
    pace = StoppedPace(adapters.clock, stop)

    def opened(location: str) -> Storage:
        return Throttled(adapters.open_storage(location), pace)

    return replace(adapters, open_storage=opened, stop=stop)


def with_second_try(storage: Storage, clock: Clock) -> Storage:
    """Return a storage that was opened impatiently, as one that tries once more."""
    return Retrying(storage, clock, patience=Patience(attempts_max=2))


def world_of(spec: Spec, run: str, workdir: Workdir, adapters: Adapters) -> World:
    """Return the world of one run's steps. Storages and clusters are opened once."""
    storages: dict[str, Storage] = {}
    clusters: dict[str, Cluster] = {}
    opening = threading.Lock()
    # It may be throttled at any time.
    pace = Pace(adapters.clock, spec.bytes_per_second, spec.operations_per_second)
    not_synced = unsynced_locations(spec)
    fed = set(chain.from_iterable(map(places_fed, spec.jobs)))
    claims: dict[str, Claimed] = {}
    spared: dict[str, Spared] = {}

    def storage(location: str) -> Storage:
        with opening:
            if location not in storages:
                opened = wrapped(adapters.open_storage(location), location)
                storages[location] = Sparing(opened, partial(spared.get, location))
            return storages[location]

    def wrapped(opened: Storage, location: str) -> Storage:
        if location in not_synced:
            return Unsynced(opened, pace)
        if location not in fed:
            return Throttled(opened, pace)

        def refuse() -> None:
            if location in claims:
                claimed, generation = claims[location]
                refuse_another(adapters.open_storage(claimed), generation)

        return Guarded(opened, pace, refuse, adapters.clock)

    def cluster(name: str) -> Cluster:
        with opening:
            if name not in clusters:
                clusters[name] = adapters.open_cluster(spec.cluster(name), workdir)
            return clusters[name]

    return World(
        storage=storage,
        cluster=cluster,
        transforms=Transforms(),
        entries=Entries(),
        clock=adapters.clock,
        groups=adapters.open_groups,
        run=run,
        meter=adapters.meter,
        stop=adapters.stop,
        parallel=spec.parallel or PARALLEL,
        cores=machine.cores(),
        # A look, and no copy: a job that is to be started again does not wait for the pace.
        fence=lambda location: engine(spec.engine).fence_of(adapters.open_storage(location)),
        fencing=partial(_fencing, spec.engine, adapters),
        pace=pace,
        unsynced=not_synced,
        claims=claims,
        spared=spared,
        corrections=corrections(workdir, spec),
    )


def _fencing(name: str, adapters: Adapters, location: str) -> Fencing:
    known = engine(name)
    found, survey = known.survey(location, adapters.open_storage)
    return Fencing(known.fence_paths(found), survey.epoch)
