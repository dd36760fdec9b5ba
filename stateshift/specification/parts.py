"""The parts of a spec that are objects of their own: for each its keys, and how it is read.

clusters    {"a": {"kind": "manual", ...}}  or  [{"name": "a", "kind": "manual", ...}]
operators   ["A", "B"]  or  [{"name": "A", "directory": "d"}]  or  {"A": "d", "B": null}
submit      {"environment": {...}, "seconds_max": 300, anything the cluster takes}
waves       [["A", "B"], ["C"]]
dataflow    "flow.json"  or  {"operators": [...], "edges": [...]}
data        [{"source": ..., "target": ..., "copy": true}]
kafka       {"bootstrap_servers": "host:9092,other:9092", "properties": "client.properties",
"source_bootstrap_servers": "old:9092", "source_properties": "old.properties"}
sink        {"kind": "delta", "location": "s3://lake/orders"}
uid_hash    "java-signed"  or  {"p": 31, "m": 1000000009, "offset": -96, "signed": false}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from stateshift.specification.key import (
    Key,
    Keys,
    Kind,
    Reader,
    Schema,
    Values,
    array,
    either,
    fold,
    map_to,
    reference,
)
from stateshift.specification.model import (
    ClusterSpec,
    DataSpec,
    HashProfile,
    JobSpec,
    KafkaSpec,
    OperatorSpec,
    SinkKind,
    SinkSpec,
    SourceKind,
    SourceSpec,
    Spec,
    SubmitSpec,
    Verify,
    VerifySource,
)
from stateshift.specification.place import Place
from stateshift.specification.secret import refuse_secrets
from stateshift.specification.values import (
    BOOLEAN,
    CHOICE,
    COUNT,
    DIRECTORY,
    ENVIRONMENT,
    INTEGER,
    LISTS_OF_NAMES,
    LOCATION,
    NUMBER,
    SOME_TEXT,
    TEXT,
    TEXTS,
    is_host_port,
    words_in_any_case,
)

CLUSTER_KINDS = ("manual", "command", "spark_submit", "livy", "spark_standalone", "flink_rest")
NAMED_PROFILES = {
    "default": HashProfile(),
    "java-signed": HashProfile(name="java-signed", signed=True),
}
_HASH_EXPECTED = (
    f"{' or '.join(map(repr, NAMED_PROFILES))}, or an object with p, m, offset and signed"
)
NEED_LOCATION = ("delta", "iceberg", "file")
# catalog.schema.table, or schema.table, with backquotes or without.
_CATALOG_NAME = re.compile(r"(?:`[^`/]+`|\w+)(?:\.(?:`[^`/]+`|\w+)){1,3}")


# -------------------------------------------------------------------------- named objects


def list_or_map(of: str) -> Schema:
    """Return the schema of named objects."""
    return either(array(reference(of)), map_to(reference(of)))


def named(reader: Reader, place: Place, what: str) -> Iterator[tuple[str | None, Place]]:
    """Yield the objects of a list, or of a map by name: each with the name that the map gives
    it.
    """
    if isinstance(place.value, list):
        yield from ((None, item) for item in place.items)
    elif reader.is_a(place, dict, f"a list of {what}, or a map of them by name"):
        for name in place.value:
            if not name.strip():
                reader.complaints.add(place / name, "a blank name", "a name")
            yield name, place / name


def name_of(
    reader: Reader, place: Place, given: str | None, known: dict[str, Place], key: Key
) -> str | None:
    """Return the name that stands in the object, or that the map gave; both only where they
    agree.
    """
    inner: str | None = reader.value(key, known["name"]) if "name" in known else None
    if given is None:
        reader.need(place, known, "name")
        return inner
    if inner not in (None, given):
        message = f"the map calls it {given!r}"
        reader.complaints.add(known["name"], message, f"{given!r}, or no name here")
    return given


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
    for given, item in named(reader, place, "clusters"):
        if not reader.is_a(item, dict, "an object"):
            continue
        known, options = reader.split(item, CLUSTER)
        refuse_secrets(reader.complaints, item)
        name = name_of(reader, item, given, known, CLUSTER["name"])
        reader.need(item, known, "kind")
        kind = reader.value(CLUSTER["kind"], known["kind"]) if "kind" in known else None
        if name in clusters:
            message = f"another cluster is called {name!r}"
            reader.complaints.add(known["name"], message, "a name of its own")
        elif name is not None:
            clusters[name] = ClusterSpec(name, kind or "manual", _picked(item, options))
    return tuple(clusters.values())


def _picked(place: Place, keys: Iterable[str]) -> dict[str, object]:
    """Return these keys of an object, each as it stands."""
    return {key: place.value[key] for key in keys}


CLUSTER_LIST = Kind("clusters", _clusters, list_or_map("cluster"))


# -------------------------------------------------------------------------- operators

OPERATOR = Keys(
    None,
    name=TEXT("The operator's name, which is its UID."),
    directory=DIRECTORY("The directory somebody else made for it, beside the others."),
)


def _operators(reader: Reader, key: Key, place: Place) -> tuple[OperatorSpec, ...]:
    if isinstance(place.value, dict):
        return tuple(_operator_of_map(reader, name, place / name) for name in place.value)
    items = reader.items(place, "a list of names, or a map from name to directory")
    operators = [_operator(reader, item) for item in items]
    return tuple(operator for operator in operators if operator is not None)


def _operator_of_map(reader: Reader, name: str, place: Place) -> OperatorSpec:
    if not name.strip():
        reader.complaints.add(place, "a blank name", "the operator's name")
    if place.value is None:
        return OperatorSpec(name)
    return OperatorSpec(name, reader.value(OPERATOR["directory"], place))


def _operator(reader: Reader, place: Place) -> OperatorSpec | None:
    if isinstance(place.value, dict):
        fields = reader.object(OPERATOR, place, "name")
        return None if fields is None else OperatorSpec(**fields)
    name = reader.value(OPERATOR["name"], place)
    return None if name is None else OperatorSpec(name)


OPERATOR_LIST = Kind(
    "operators",
    _operators,
    either(array(either(SOME_TEXT, reference("operator"))), map_to(DIRECTORY.schema)),
    shared=True,
)


# -------------------------------------------------------------------------- start and stop

SUBMIT = Keys(
    SubmitSpec,
    environment=ENVIRONMENT("Variables of the job's own environment."),
    seconds_max=NUMBER("How long to wait for the first committed batch."),
    prepare=BOOLEAN(
        "Start the job before the old one is stopped: it calls stateshift.job.wait() before its "
        "first query, and goes on when its image is there."
    ),
    submit_check=TEXT(
        "A shell command that is run on this machine before the old job is stopped. If it exits "
        "with anything but 0, the move is refused (exit code 4) with its last lines. It gets "
        "STATESHIFT_JOB, STATESHIFT_CHECKPOINT and STATESHIFT_OPTIONS.",
        field="check",
    ),
)

STOP = Keys(
    None,
    seconds_max=NUMBER("How long to wait for a graceful stop."),
    tag=TEXT("The name under which the source cluster knows the job."),
)


def _submit(reader: Reader, key: Key, place: Place) -> SubmitSpec:
    refuse_secrets(reader.complaints, place)
    known, options = reader.split(place, SUBMIT)
    return SubmitSpec(_picked(place, options), **reader.fields(SUBMIT, known))


def _stop(reader: Reader, key: Key, place: Place) -> Values:
    refuse_secrets(reader.complaints, place)
    known, options = reader.split(place, STOP)
    return {**reader.fields(STOP, known), **_picked(place, options)}


SUBMIT_OBJECT = Kind("submit", _submit, reference("submit"))
STOP_OBJECT = Kind("stop", _stop, reference("stop"))


# -------------------------------------------------------------------------- waves and dataflow

# One wave of `waves`.
WAVE = TEXTS("The jobs that move together.")


def _waves(reader: Reader, key: Key, place: Place) -> tuple[tuple[str, ...], ...]:
    waves = []
    for item in reader.items(place, "a list of waves, each a list of jobs' names"):
        is_list = reader.is_a(item, list, "a list of jobs' names")
        names = reader.value(WAVE, item) if is_list else ()
        if not names:
            reader.complaints.add(item, "a wave without jobs", "at least one job's name")
        waves.append(names)
    return tuple(waves)


def _dataflow(reader: Reader, key: Key, place: Place) -> dict[str, object] | str | None:
    """Return it as it stands: it is read last, since a file may hold it (`spec_dataflow`)."""
    value: dict[str, object] | str = place.value
    if isinstance(value, dict) or (isinstance(value, str) and value.strip()):
        return value
    reader.refuse(place, "a dataflow, or the name of a file that holds one")
    return None


WAVE_LIST = Kind("waves", _waves, LISTS_OF_NAMES)
DATAFLOW_VALUE = Kind("dataflow", _dataflow, either(SOME_TEXT, {"type": "object"}))


# -------------------------------------------------------------------------- data and sources

DATA = Keys(
    None,
    source=LOCATION("Where the directory is now."),
    target=LOCATION("Where it is afterwards."),
    copy=BOOLEAN("Whether to copy its content; false if it is there already."),
)

SOURCE = Keys(
    SourceSpec,
    kind=CHOICE("What it is.", choices=get_args(SourceKind)),
    location=LOCATION("The table's folder."),
)


def _data(reader: Reader, key: Key, place: Place) -> tuple[DataSpec, ...]:
    items = reader.items(place, "a list of {source, target, copy}")
    read = [reader.object(DATA, item, "source", "target") for item in items]
    return tuple(DataSpec(**fields) for fields in read if fields is not None)


def _sources(reader: Reader, key: Key, place: Place) -> tuple[SourceSpec, ...]:
    sources = []
    for item in reader.items(place, "a list of {kind, location}"):
        known = reader.known(item, SOURCE)
        if isinstance(item.value, dict) and reader.need(item, known, "kind", "location"):
            _refuse_catalog_name(reader, known["location"])
            fields = reader.fields(SOURCE, known)
            if {"kind", "location"} <= fields.keys():
                sources.append(SourceSpec(**fields))
    return tuple(sources)


def _refuse_catalog_name(reader: Reader, place: Place) -> None:
    """Complain of a table that is named as a catalog names it, and not by its place."""
    if isinstance(place.value, str) and _CATALOG_NAME.fullmatch(place.value.strip()):
        message = f"{place.value!r} is the name of a table in a catalog, or a relative path"
        expected = (
            "where the table lies, such as s3://lake/orders (DESCRIBE DETAIL says it), or "
            f"./{place.value} for a path"
        )
        reader.complaints.add(place, message, expected)


DATA_LIST = Kind("data", _data, array(reference("datum")))
SOURCE_LIST = Kind("sources", _sources, array(reference("source")))


# -------------------------------------------------------------------------- sink

SINK = Keys(
    SinkSpec,
    kind=CHOICE("What it is.", choices=get_args(SinkKind)),
    location=LOCATION(
        "The table's folder (delta, iceberg), or the folder of the files. Left out for a "
        "foreach-batch function that writes to no table, and for kafka."
    ),
    idempotent_by_batch=BOOLEAN(
        "foreach-batch: whether the function drops a batch whose number it has seen before."
    ),
    transaction_id=TEXT(
        "foreach-batch: the txnAppId with which the function writes to the Delta table at the "
        "location, beside txnVersion, the batch."
    ),
)


def _sink(reader: Reader, key: Key, place: Place) -> SinkSpec | None:
    known = reader.known(place, SINK)
    if not isinstance(place.value, dict) or not reader.need(place, known, "kind"):
        return None
    fields = reader.fields(SINK, known)
    kind = fields.get("kind")
    if kind in NEED_LOCATION:
        reader.need(place, known, "location")
    if "location" in known:
        _refuse_catalog_name(reader, known["location"])
    for name in ("idempotent_by_batch", "transaction_id"):
        if name in known and kind not in (None, "foreach-batch"):
            message = f"{name!r} is for a foreach-batch function, and this is {kind}"
            reader.complaints.add(known[name], message, '"kind": "foreach-batch", or without it')
    if "transaction_id" in known and "location" not in known:
        message = "'transaction_id' without 'location': no table's log can be read"
        reader.complaints.add(known["transaction_id"], message, "'location': the Delta table")
    return SinkSpec(**fields) if kind is not None else None


SINK_OBJECT = Kind("sink", _sink, reference("sink"))


# -------------------------------------------------------------------------- kafka

KAFKA = Keys(
    KafkaSpec,
    bootstrap_servers=TEXT("host:port of brokers, with commas."),
    properties=LOCATION(
        "A file of client properties on this machine (security.protocol, sasl.mechanism): "
        "credentials are in there, and not in the spec."
    ),
    source_bootstrap_servers=TEXT(
        "The brokers that the job has read so far, if they differ: `plan` compares the records "
        "around its offsets."
    ),
    source_properties=LOCATION("The same for these."),
)


def _kafka(reader: Reader, key: Key, place: Place) -> KafkaSpec | None:
    known = reader.known(place, KAFKA)
    if not isinstance(place.value, dict) or not reader.need(place, known, "bootstrap_servers"):
        return None
    fields = reader.fields(KAFKA, known)
    if not _kafka_fits(reader, place, known, fields) or "bootstrap_servers" not in fields:
        return None
    return KafkaSpec(**fields)


def _kafka_fits(
    reader: Reader, place: Place, known: Mapping[str, Place], fields: dict[str, str]
) -> bool:
    """Spell servers in one way. Return whether all of them are servers, files of properties are on
    this machine, and the source's belong to servers.
    """
    for name in ("bootstrap_servers", "source_bootstrap_servers"):
        servers = [server.strip() for server in fields.get(name, "any:1").split(",")]
        if not all(map(is_host_port, servers)):
            reader.refuse(known[name], "host:port, or several with commas")
            return False
        if name in fields:
            fields[name] = ",".join(servers)
    for name in ("properties", "source_properties"):
        if not fields.get(name, "file://").startswith("file://"):
            reader.refuse(known[name], "a file on this machine")
            return False
    if "source_properties" not in known:
        return True
    return reader.need(place, known, "source_bootstrap_servers")


KAFKA_OBJECT = Kind("kafka", _kafka, reference("kafka"))


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


# -------------------------------------------------------------------------- throttle, verify

THROTTLE = Keys(
    Spec,
    bytes_per_second=NUMBER("Bytes read and written in a second."),
    operations_per_second=NUMBER("Requests in a second."),
)

VERIFY = Keys(
    JobSpec,
    source=CHOICE(
        "Before the job is stopped: deep reads all that a restart needs, as `verify --deep` does; "
        "names goes by names and sizes, as `plan` does.",
        field="verify_source",
        choices=get_args(VerifySource),
    ),
    target=CHOICE(
        "How the target is compared with the source. State that is rewritten is compared with what "
        "was read to be rewritten; `twice` reads it once more.",
        field="verify",
        choices=get_args(Verify),
    ),
)


def _throttle(reader: Reader, key: Key, place: Place) -> Values:
    return reader.fields(THROTTLE, reader.known(place, THROTTLE))


def _verify(reader: Reader, key: Key, place: Place) -> object:
    """Read a word, which says how the target is compared; or an object, which says by the model's
    names what is done at both ends.
    """
    if isinstance(place.value, dict):
        return reader.fields(VERIFY, reader.known(place, VERIFY))
    return reader.value(VERIFY["target"], place)


THROTTLE_OBJECT = Kind("throttle", _throttle, reference("throttle"))
VERIFY_VALUE = Kind(
    "verify",
    _verify,
    either(
        {"enum": list(get_args(Verify))},
        words_in_any_case(get_args(Verify)),
        reference("verify_ends"),
    ),
)
