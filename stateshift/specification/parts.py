"""The parts of a spec that are objects of their own: clusters, operators, submissions, data,
hashes.

    clusters    {"a": {"kind": "manual", ...}}  or  [{"name": "a", "kind": "manual", ...}]
    operators   ["A", "B"]  or  [{"name": "A", "directory": "d"}]  or  {"A": "d", "B": null}
    submit      {"environment": {...}, "seconds_max": 300, anything the cluster takes}
    waves       [["A", "B"], ["C"]]
    dataflow    "flow.json"  or  {"operators": [...], "edges": [...]}
    data        [{"source": ..., "target": ..., "copy": true}]
    kafka       {"bootstrap_servers": "host:9092,other:9092", "properties": "client.properties",
                 "source_bootstrap_servers": "old:9092", "source_properties": "old.properties"}
    sink        {"kind": "delta", "location": "s3://lake/orders"}
    on          {"failed": ["./page.sh"], "finished": {"url_variable": "SLACK_URL"}}
    uid_hash    "java-signed"  or  {"p": 31, "m": 1000000009, "offset": -96, "signed": false}

`read_part` reads any key's value, these as well as single ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stateshift.specification.changes import read_changes
from stateshift.specification.keys.key import Key, fold
from stateshift.specification.keys.parts import (
    CLUSTER,
    DATA,
    HASH,
    KAFKA,
    OPERATOR,
    PROFILES,
    SINK,
    SOURCE,
    STOP,
    SUBMIT,
    THROTTLE,
    VERIFY,
    WAVE,
)
from stateshift.specification.model import (
    ClusterSpec,
    DataSpec,
    HashProfile,
    KafkaSpec,
    OperatorSpec,
    SinkSpec,
    SourceSpec,
    SubmitSpec,
)
from stateshift.specification.place import Place
from stateshift.specification.receivers import read_receivers
from stateshift.specification.secret import refuse_secrets
from stateshift.specification.values import Reader, Values, is_host_port

NAMED_PROFILES = {
    "default": HashProfile(),
    "java-signed": HashProfile(name="java-signed", signed=True),
}
assert tuple(NAMED_PROFILES) == PROFILES


def named(reader: Reader, place: Place, what: str) -> Iterator[tuple[str | None, Place]]:
    """Yield the objects of a list, or of a map by name: each with the name that the map gives
    it.
    """
    if isinstance(place.value, list):
        for item in place.items:
            yield None, item
    elif reader.is_a(place, dict, f"a list of {what}, or a map of them by name"):
        yield from _named_in_map(reader, place)


def _named_in_map(reader: Reader, place: Place) -> Iterator[tuple[str, Place]]:
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
    inner = _text_at(reader, key, known)
    if given is None:
        reader.need(place, known, "name")
        return inner
    if inner not in (None, given):
        message = f"the map calls it {given!r}"
        reader.complaints.add(known["name"], message, f"{given!r}, or no name here")
    return given


def _text_at(reader: Reader, key: Key, known: Mapping[str, Place]) -> str | None:
    """Return the text of a key that may be left out."""
    text: str | None = reader.value(key, known[key.name]) if key.name in known else None
    return text


def read_part(reader: Reader, key: Key, place: Place) -> Any:
    """Return what the model holds of this key; None, after a complaint, where that cannot be
    said.
    """
    read = _READ.get(key.kind)
    return read(reader, place) if read else reader.value(key, place)


def _clusters(reader: Reader, place: Place) -> tuple[ClusterSpec, ...]:
    clusters: dict[str, ClusterSpec] = {}
    for given, item in named(reader, place, "clusters"):
        if reader.is_a(item, dict, "an object"):
            _add_cluster(reader, item, given, clusters)
    return tuple(clusters.values())


def _add_cluster(
    reader: Reader, item: Place, given: str | None, clusters: dict[str, ClusterSpec]
) -> None:
    """Add the cluster of an object that has a name, unless there is one of that name."""
    known, options = reader.split(item, CLUSTER)
    refuse_secrets(reader.complaints, item)
    name = name_of(reader, item, given, known, CLUSTER["name"])
    reader.need(item, known, "kind")
    kind = _text_at(reader, CLUSTER["kind"], known)
    if name in clusters:
        message = f"another cluster is called {name!r}"
        reader.complaints.add(known["name"], message, "a name of its own")
    elif name is not None:
        own = _picked(item, options)
        clusters[name] = ClusterSpec(name, kind or "manual", own)


def _picked(place: Place, keys: Iterable[str]) -> dict[str, object]:
    """Return these keys of an object, each as it stands."""
    return {key: place.value[key] for key in keys}


def _operators(reader: Reader, place: Place) -> tuple[OperatorSpec, ...]:
    if isinstance(place.value, dict):
        return tuple(_operator_of_map(reader, name, place / name) for name in place.value)
    if not reader.is_a(place, list, "a list of names, or a map from name to directory"):
        return ()
    read = [_operator(reader, item) for item in place.items]
    return tuple(operator for operator in read if operator is not None)


def _operator_of_map(reader: Reader, name: str, place: Place) -> OperatorSpec:
    if not name.strip():
        reader.complaints.add(place, "a blank name", "the operator's name")
    return OperatorSpec(name, _directory(reader, place))


def _operator(reader: Reader, place: Place) -> OperatorSpec | None:
    if not isinstance(place.value, dict):
        return _operator_of_name(reader, place)
    known = reader.known(place, OPERATOR)
    if not reader.need(place, known, "name"):
        return None
    fields = reader.fields(OPERATOR, known)
    return OperatorSpec(**fields) if "name" in fields else None


def _operator_of_name(reader: Reader, place: Place) -> OperatorSpec | None:
    name = reader.value(OPERATOR["name"], place)
    return OperatorSpec(name) if name is not None else None


def _directory(reader: Reader, place: Place) -> str | None:
    if place.value is None:
        return None
    directory: str | None = reader.value(OPERATOR["directory"], place)
    return directory


def _submit(reader: Reader, place: Place) -> SubmitSpec:
    refuse_secrets(reader.complaints, place)
    known, options = reader.split(place, SUBMIT)
    return SubmitSpec(_picked(place, options), **reader.fields(SUBMIT, known))


def _stop(reader: Reader, place: Place) -> Values:
    refuse_secrets(reader.complaints, place)
    known, options = reader.split(place, STOP)
    return {**reader.fields(STOP, known), **_picked(place, options)}


def _waves(reader: Reader, place: Place) -> tuple[tuple[str, ...], ...]:
    if not reader.is_a(place, list, "a list of waves, each a list of jobs' names"):
        return ()
    return tuple(_wave(reader, wave) for wave in place.items)


def _wave(reader: Reader, place: Place) -> tuple[str, ...]:
    is_list = reader.is_a(place, list, "a list of jobs' names")
    names: tuple[str, ...] | None = reader.value(WAVE, place) if is_list else None
    if not names:
        reader.complaints.add(place, "a wave without jobs", "at least one job's name")
    return names or ()


def _dataflow(reader: Reader, place: Place) -> dict[str, object] | str | None:
    """Return it as it stands: it is read last, since a file may hold it (`spec_dataflow`)."""
    value: dict[str, object] | str = place.value
    if isinstance(value, dict) or (isinstance(value, str) and value.strip()):
        return value
    reader.refuse(place, "a dataflow, or the name of a file that holds one")
    return None


def _data(reader: Reader, place: Place) -> tuple[DataSpec, ...]:
    if not reader.is_a(place, list, "a list of {source, target, copy}"):
        return ()
    data = [_datum(reader, item) for item in place.items]
    return tuple(datum for datum in data if datum is not None)


def _datum(reader: Reader, place: Place) -> DataSpec | None:
    known = reader.known(place, DATA)
    if not isinstance(place.value, dict) or not reader.need(place, known, "source", "target"):
        return None
    fields = reader.fields(DATA, known)
    return DataSpec(**fields) if {"source", "target"} <= set(fields) else None


def _kafka(reader: Reader, place: Place) -> KafkaSpec | None:
    known = reader.known(place, KAFKA)
    if not isinstance(place.value, dict) or not reader.need(place, known, "bootstrap_servers"):
        return None
    fields = reader.fields(KAFKA, known)
    if not _kafka_fits(reader, place, known, fields):
        return None
    return KafkaSpec(**fields) if "bootstrap_servers" in fields else None


def _kafka_fits(
    reader: Reader, place: Place, known: Mapping[str, Place], fields: dict[str, str]
) -> bool:
    if not _settle_servers(reader, known, fields):
        return False
    return _properties_fit(reader, place, known, fields)


def _settle_servers(reader: Reader, known: Mapping[str, Place], fields: dict[str, str]) -> bool:
    """Spell servers in one way; return whether all that are given are servers."""
    for key in ("bootstrap_servers", "source_bootstrap_servers"):
        if key in fields:
            servers = _servers(reader, known[key], fields[key])
            if servers is None:
                return False
            fields[key] = servers
    return True


def _properties_fit(
    reader: Reader, place: Place, known: Mapping[str, Place], fields: Mapping[str, str]
) -> bool:
    """Whether files of properties are on this machine, and the source's belong to servers."""
    for key in ("properties", "source_properties"):
        if not _is_local(reader, known, fields, key):
            return False
    if "source_properties" not in known:
        return True
    return reader.need(place, known, "source_bootstrap_servers")


def _is_local(
    reader: Reader, known: Mapping[str, Place], fields: Mapping[str, str], key: str
) -> bool:
    """Whether a file is on this machine, or not named at all."""
    if fields.get(key, "file://").startswith("file://"):
        return True
    reader.refuse(known[key], "a file on this machine")
    return False


def _servers(reader: Reader, place: Place, text: str) -> str | None:
    servers = [server.strip() for server in text.split(",")]
    if all(map(is_host_port, servers)):
        return ",".join(servers)
    reader.refuse(place, "host:port, or several with commas")
    return None


def _sources(reader: Reader, place: Place) -> tuple[SourceSpec, ...]:
    if not reader.is_a(place, list, "a list of {kind, location}"):
        return ()
    sources = []
    for item in place.items:
        known = reader.known(item, SOURCE)
        if isinstance(item.value, dict) and reader.need(item, known, "kind", "location"):
            _refuse_catalog_name(reader, known["location"])
            fields = reader.fields(SOURCE, known)
            sources += [SourceSpec(**fields)] if {"kind", "location"} <= set(fields) else []
    return tuple(sources)


NEED_LOCATION = ("delta", "iceberg", "file")


def _sink(reader: Reader, place: Place) -> SinkSpec | None:
    known = reader.known(place, SINK)
    if not isinstance(place.value, dict) or not reader.need(place, known, "kind"):
        return None
    fields = reader.fields(SINK, known)
    kind = fields.get("kind")
    _check_sink(reader, place, known, kind)
    return SinkSpec(**fields) if kind is not None else None


def _check_sink(reader: Reader, place: Place, known: Mapping[str, Place], kind: str | None) -> None:
    """Complain of keys that this kind of sink lacks, or does not know."""
    if kind in NEED_LOCATION:
        reader.need(place, known, "location")
    if "location" in known:
        _refuse_catalog_name(reader, known["location"])
    if kind not in (None, "foreach-batch"):
        _check_no_function(reader, known, kind)
    if "transaction_id" in known and "location" not in known:
        message = "'transaction_id' without 'location': no table's log can be read"
        reader.complaints.add(known["transaction_id"], message, "'location': the Delta table")


def _refuse_catalog_name(reader: Reader, place: Place) -> None:
    """Complain of a table that is named as a catalog names it, and not by its place."""
    if isinstance(place.value, str) and _CATALOG_NAME.fullmatch(place.value.strip()):
        message = f"{place.value!r} is the name of a table in a catalog, or a relative path"
        expected = (
            "where the table lies, such as s3://lake/orders (DESCRIBE DETAIL says it), or "
            f"./{place.value} for a path"
        )
        reader.complaints.add(place, message, expected)


# catalog.schema.table, or schema.table, with backquotes or without.
_CATALOG_NAME = re.compile(r"(?:`[^`/]+`|\w+)(?:\.(?:`[^`/]+`|\w+)){1,3}")


def _check_no_function(reader: Reader, known: Mapping[str, Place], kind: str) -> None:
    for name in ("idempotent_by_batch", "transaction_id"):
        if name in known:
            message = f"{name!r} is for a foreach-batch function, and this is {kind}"
            reader.complaints.add(known[name], message, '"kind": "foreach-batch", or without it')


def _uid_hash(reader: Reader, place: Place) -> HashProfile | None:
    if isinstance(place.value, str):
        return _named_profile(reader, place)
    if not reader.is_a(place, dict, _HASH_EXPECTED):
        return None
    made = HashProfile(**{"name": "custom", **reader.fields(HASH, reader.known(place, HASH))})
    _check_profile(reader, place, made)
    return made


def _named_profile(reader: Reader, place: Place) -> HashProfile | None:
    by_folded_name = {fold(name): profile for name, profile in NAMED_PROFILES.items()}
    profile = by_folded_name.get(fold(place.value))
    if profile is None:
        reader.refuse(place, _HASH_EXPECTED)
    return profile


def _check_profile(reader: Reader, place: Place, made: HashProfile) -> None:
    if made.name in NAMED_PROFILES and made != NAMED_PROFILES[made.name]:
        message = f"the profile {made.name!r} has other constants"
        reader.complaints.add(place, message, "another name, or none")
    if made.m < 2:
        reader.complaints.add(
            place, "a modulus that gives every name the same hash", "m of at least 2"
        )


_HASH_EXPECTED = f"{' or '.join(map(repr, PROFILES))}, or an object with p, m, offset and signed"


def _throttle(reader: Reader, place: Place) -> dict[str, float]:
    return reader.fields(THROTTLE, reader.known(place, THROTTLE))


def _verify(reader: Reader, place: Place) -> object:
    """Read a word, which says how the target is compared; or an object, which says by the model's
    names what is done at both ends.
    """
    if isinstance(place.value, dict):
        return reader.fields(VERIFY, reader.known(place, VERIFY))
    return reader.value(VERIFY["target"], place)


_READ: dict[str, Callable[[Reader, Place], object]] = {
    "clusters": _clusters,
    "operators": _operators,
    "submit": _submit,
    "stop": _stop,
    "waves": _waves,
    "dataflow": _dataflow,
    "data": _data,
    "kafka": _kafka,
    "sources": _sources,
    "sink": _sink,
    "uid_hash": _uid_hash,
    "throttle": _throttle,
    "verify": _verify,
    "transform": read_changes,
    "on": read_receivers,
}
