"""The keys of the spec itself, and of the objects that stand beside `jobs`: for each of these its
keys, and how it is read.

    clusters    {"a": {"kind": "manual", ...}}  or  [{"name": "a", "kind": "manual", ...}]
    waves       [["A", "B"], ["C"]]
    dataflow    "flow.json"  or  {"operators": [...], "edges": [...]}
    on          {"ready": ["notify-send", "ready"],
                 "failed": {"command": ["./page.sh", "--on-call"], "seconds_max": 20},
                 "finished": {"url_variable": "SLACK_URL"}}
    uid_hash    "java-signed"  or  {"p": 31, "m": 1000000009, "offset": -96, "signed": false}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from stateshift.specification.changes import COLUMN
from stateshift.specification.grammars import fold
from stateshift.specification.job_keys import (
    DATA,
    DRILL,
    JOB,
    KAFKA,
    OPERATOR,
    SINK,
    SOURCE,
    STANDBY,
    STOP,
    SUBMIT,
    TAKE_BACK,
    TAKE_OVER,
    VERIFY,
)
from stateshift.specification.key import (
    Engine,
    Key,
    Keys,
    Kind,
    Reader,
    Schema,
    array,
    either,
    map_to,
    reference,
)
from stateshift.specification.model import (
    ClusterSpec,
    HashProfile,
    OnFailure,
    Receiver,
    Receivers,
    Spec,
)
from stateshift.specification.options import CLUSTER_KINDS
from stateshift.specification.place import Place
from stateshift.specification.rebalancing import (
    CAPACITY,
    REBALANCE,
    REBALANCE_OBJECT,
    REBALANCED_CLUSTER,
    job_groups,
)
from stateshift.specification.text import WHERE_CREDENTIALS_BELONG, refuse_secrets
from stateshift.specification.values import (
    BOOLEAN,
    CHOICE,
    COUNT,
    INTEGER,
    LISTS_OF_NAMES,
    LOCATION,
    NUMBER,
    SOME_TEXT,
    STRATEGY,
    TEXT,
    VERSION,
    WORDS,
    as_it_stands,
    object_of,
    words_in_any_case,
)

NAMED_PROFILES = {
    "default": HashProfile(),
    "java-signed": HashProfile(name="java-signed", signed=True),
}
_HASH_EXPECTED = (
    f"{' or '.join(map(repr, NAMED_PROFILES))}, or an object with p, m, offset and signed"
)


def list_or_map(of: str) -> Schema:
    """Return the schema of named objects."""
    return either(array(reference(of)), map_to(reference(of)))


# -------------------------------------------------------------------------- clusters

CLUSTER = Keys(
    None,
    name=TEXT("The name jobs call it by."),
    kind=CHOICE(
        "How jobs are found, stopped and started there.",
        choices=CLUSTER_KINDS,
        added_by="stateshift.clusters",
    ),
)


def _clusters(reader: Reader, key: Key, place: Place) -> tuple[ClusterSpec, ...]:
    clusters: dict[str, ClusterSpec] = {}
    for given, item in reader.named(place, "clusters"):
        if not reader.is_a(item, dict, "an object"):
            continue
        known, options = reader.split(item, CLUSTER)
        refuse_secrets(reader.complaints, item)
        name = reader.name_of(item, given, known, CLUSTER["name"])
        reader.need(item, known, "kind")
        kind = reader.value(CLUSTER["kind"], known["kind"]) if "kind" in known else None
        if name in clusters:
            message = f"another cluster is called {name!r}"
            reader.complaints.add(known["name"], message, "a name of its own")
        elif name is not None:
            clusters[name] = ClusterSpec(name, kind or "manual", item.picked(options))
    return tuple(clusters.values())


CLUSTER_LIST = Kind("clusters", _clusters, list_or_map("cluster"))


# -------------------------------------------------------------------------- waves and dataflow


def _dataflow(reader: Reader, key: Key, place: Place) -> dict[str, object] | str | None:
    """Return it as it stands: it is read last, since a file may hold it (`dataflow.parse`)."""
    value: dict[str, object] | str = place.value
    if isinstance(value, dict) or (isinstance(value, str) and value.strip()):
        return value
    reader.refuse(place, "a dataflow, or the name of a file that holds one")
    return None


WAVE_LIST = Kind(
    "waves",
    job_groups(
        "a list of waves, each a list of jobs' names",
        "a list of jobs' names",
        empty="a wave without jobs",
    ),
    LISTS_OF_NAMES,
)
DATAFLOW_VALUE = Kind("dataflow", _dataflow, either(SOME_TEXT, {"type": "object"}))


# -------------------------------------------------------------------------- hashes

HASH = Keys(
    None,
    name=TEXT("A name for these constants."),
    p=COUNT("The base."),
    m=COUNT("The modulus."),
    offset=INTEGER("Added to every character's code."),
    signed=BOOLEAN("Whether the remainder keeps its sign, as Java's % does."),
)


def _uid_hash(reader: Reader, key: Key, place: Place) -> HashProfile | None:
    if isinstance(place.value, str):
        profiles = {fold(name): profile for name, profile in NAMED_PROFILES.items()}
        profile = profiles.get(fold(place.value))
        if profile is None:
            reader.refuse(place, _HASH_EXPECTED)
        return profile
    if not reader.is_a(place, dict, _HASH_EXPECTED):
        return None
    made = HashProfile(**{"name": "custom", **reader.fields(HASH, reader.known(place, HASH))})
    if made.name in NAMED_PROFILES and made != NAMED_PROFILES[made.name]:
        message = f"the profile {made.name!r} has other constants"
        reader.complaints.add(place, message, "another name, or none")
    if made.m < 2:
        message = "a modulus that gives every name the same hash"
        reader.complaints.add(place, message, "m of at least 2")
    return made


UID_HASH_VALUE = Kind(
    "uid_hash",
    _uid_hash,
    either({"enum": list(NAMED_PROFILES)}, words_in_any_case(NAMED_PROFILES), reference("hash")),
    shared=True,
)


# -------------------------------------------------------------------------- throttle

THROTTLE = Keys(
    Spec,
    bytes_per_second=NUMBER("Bytes read and written in a second."),
    operations_per_second=NUMBER("Requests in a second."),
)


THROTTLE_OBJECT = Kind("throttle", object_of(THROTTLE, dict), reference("throttle"))


# -------------------------------------------------------------------------- receivers of events

# The URL of a webhook is a credential wherever a token is part of it, as with Slack. It never
# stands in the spec, which names the variable, or the file, that holds it.
SECONDS_MAX = 60.0
WAYS = ("command", "url_variable", "url_file")
_RECEIVER_EXPECTED = (
    "a command as a list of words, or an object with one of 'command', 'url_variable', 'url_file'"
)

RECEIVER = Keys(
    Receiver,
    command=WORDS("A command, word by word. It gets the event as JSON on its standard input."),
    url_variable=TEXT("The environment variable that holds the URL of a webhook, such as Slack's."),
    url_file=LOCATION("A file on this machine that holds the URL of a webhook."),
    seconds_max=NUMBER(
        "How long it may take, 60 at most. Whoever runs stateshift waits that long at the end."
    ),
)


def _receiver(reader: Reader, key: Key, place: Place) -> Receiver | None:
    if isinstance(place.value, list):
        return Receiver(_words(reader, place))
    if isinstance(place.value, str) and "://" in place.value:
        # It is not repeated: a token may be part of it.
        message = "the URL of a webhook is a credential, and specs are copied into plans"
        reader.complaints.add(place.hidden, message, WHERE_CREDENTIALS_BELONG)
        return None
    if not reader.is_a(place, dict, _RECEIVER_EXPECTED):
        return None
    known = reader.known(place, RECEIVER)
    ways = [way for way in WAYS if way in known]
    if len(ways) != 1:
        given = " and ".join(map(repr, ways)) or "neither a command nor a webhook"
        reader.complaints.add(place, f"{given}: one receiver is notified", _RECEIVER_EXPECTED)
        return None
    command = known.pop("command", None)
    fields = reader.fields(RECEIVER, known)
    if command is not None:
        fields["command"] = _words(reader, command)
    if not fields.get("url_file", "file://").startswith("file://"):
        message = "not a file on this machine that holds the URL"
        reader.complaints.add(known["url_file"].hidden, message, "a file on this machine")
    if not fields.get("url_variable", "A").replace("_", "a").isalnum():
        message, expected = "not the name of a variable", "a name such as SLACK_URL"
        reader.complaints.add(known["url_variable"].hidden, message, expected)
    if fields.get("seconds_max", 0.0) > SECONDS_MAX:
        reader.refuse(known["seconds_max"], f"a number of seconds up to {SECONDS_MAX:g}")
    return Receiver(**fields)


def _words(reader: Reader, place: Place) -> tuple[str, ...]:
    """Return the words of a command. None of them may be a credential."""
    expected = "a list of words, the first of them a program"
    if not reader.is_a(place, list, expected):
        return ()
    words = tuple(word for word in place.value if isinstance(word, str))
    if len(words) != len(place.value) or not words or not words[0].strip():
        reader.refuse(place, expected)
        return ()
    refuse_secrets(reader.complaints, place)
    return words


RECEIVER_VALUE = Kind("receiver", _receiver, either(WORDS.schema, reference("webhook_or_command")))
ON = Keys(
    Receivers,
    ready=RECEIVER_VALUE(
        "A warm job could be stopped now and waits for `stateshift cutover` or its hours; or a "
        "standby has its first image to start from."
    ),
    failed=RECEIVER_VALUE("The run has ended with an error, or was interrupted."),
    finished=RECEIVER_VALUE("The run is finished."),
    rpo=RECEIVER_VALUE(
        "A standby would lose more than its `rpo` allows (the event rpo-passed), or no longer "
        "would (rpo-kept)."
    ),
)


ON_OBJECT = Kind("on", object_of(ON, Receivers), reference("on"))


# -------------------------------------------------------------------------- the spec

# `parse` reads them last: the other keys say in which dialect they are.
JOB_LIST = Kind("jobs", as_it_stands, {**list_or_map("job"), "minItems": 1, "minProperties": 1})

SPEC = Keys(
    Spec,
    *(key for key in JOB.all if key.for_all),
    **{"$schema": TEXT("Where this schema is, for editors.")},
    version=VERSION("The version of this dialect. INFORE's dialects have none."),
    engine=CHOICE(
        "The engine that keeps the state. Default: flink if a key of Flink's is used, else spark.",
        choices=get_args(Engine),
        added_by="stateshift.engines",
    ),
    restart=BOOLEAN(
        "True: the jobs exist, move and start again. False: a first deployment; they are prepared "
        "and started."
    ),
    jobs=JOB_LIST("The jobs in the order in which they move: a list, or a map by name."),
    waves=WAVE_LIST(
        "Which jobs move together, phase by phase: a list of waves in their order, each a list of "
        "jobs' names; every job is in one. Left out, `strategy` says so; jobs that share a source "
        "move together."
    ),
    strategy=STRATEGY(
        "Which jobs move together, if `waves` is left out. fluid (default): one after the other. "
        "all-at-once: all of them. batched(k): k at a time. optimised: as few waves as possible in "
        "which no cluster loses two jobs or receives two."
    ),
    dataflow=DATAFLOW_VALUE(
        "How the operators of the jobs send to each other: a dataflow "
        "(configs/dataflow.schema.json) whose operators say which job they are of, or a file of "
        "one beside the spec. Jobs that must change at one cut move in one wave."
    ),
    on_failure=CHOICE(
        "What happens when a job fails. restart (the default): the failed wave is rolled back if "
        "the run has stopped a job of it, which so runs again where it was; nothing more starts. "
        "stop: nothing more starts, and what was stopped stays down; you decide. finish: the "
        "failed wave is rolled back, the other waves continue. rollback: the whole run is rolled "
        "back, except waves with a job that has committed at its target. discard: those waves, "
        "too.",
        choices=get_args(OnFailure),
    ),
    on=ON_OBJECT("Who is notified: by event, a command or a webhook. Never keeps the run waiting."),
    rebalance=REBALANCE_OBJECT(
        "Between which clusters `stateshift rebalance` may move the jobs, and when. The jobs have "
        "no target then."
    ),
    clusters=CLUSTER_LIST("Where jobs run: a map by name, or a list."),
    uid_hash=UID_HASH_VALUE(
        "How an operator's name becomes its directory: a profile's name, or constants."
    ),
    production=BOOLEAN("Whether operators keep their results in <hash>_RES directories."),
    parallel=COUNT(
        "At most this many steps at once (4), and processes (one a core); small network steps may "
        "be more. 1 keeps everything in one process."
    ),
    throttle=THROTTLE_OBJECT("Limits on what the storages are asked for."),
)


# -------------------------------------------------------------------------- objects

# The objects inside a spec and its jobs, but for changes: by the names of their schemas, their keys
# and the place where they stand.
OBJECTS: Mapping[str, tuple[Keys, str]] = {
    "cluster": (CLUSTER, "inside one of 'clusters'"),
    "submit": (SUBMIT, "inside 'submit' of a job"),
    "stop": (STOP, "inside 'stop' of a job"),
    "datum": (DATA, "inside 'data' of a job"),
    "kafka": (KAFKA, "inside 'kafka' of a job"),
    "sink": (SINK, "inside 'sink' of a job"),
    "source": (SOURCE, "inside one of a job's 'sources'"),
    "operator": (OPERATOR, "inside one of a job's 'operators'"),
    "standby": (STANDBY, "inside 'standby' of a job"),
    "drill": (DRILL, "inside 'drill' of a job"),
    "take_over": (TAKE_OVER, "inside 'takes_over' of a job"),
    "take_back": (TAKE_BACK, "inside 'takes_back' of a job"),
    "verify_ends": (VERIFY, "inside 'verify' of a job"),
    "on": (ON, "inside 'on'"),
    "webhook_or_command": (RECEIVER, "inside an event of 'on'"),
    "rebalance": (REBALANCE, "inside 'rebalance'"),
    "rebalanced_cluster": (REBALANCED_CLUSTER, "inside one of the 'clusters' of 'rebalance'"),
    "capacity_of": (CAPACITY, "inside 'capacity' of a cluster of 'rebalance'"),
    "throttle": (THROTTLE, "inside 'throttle'"),
    "hash": (HASH, "inside 'uid_hash'"),
    "column": (COLUMN, "inside a column of 'add'"),
}
