"""Over all specs: what is written is read again; whatever is read, only SpecError is raised;
importing stays light.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stateshift.errors import SpecError
from stateshift.specification import (
    ClusterSpec,
    DataSpec,
    FlinkJob,
    HashProfile,
    JobSpec,
    KafkaSpec,
    OperatorSpec,
    Receiver,
    Receivers,
    SinkSpec,
    SourceSpec,
    Spec,
    SubmitSpec,
    parse_spec,
    spec_schema,
    to_plain_spec,
)
from stateshift.specification.job_keys import JOB
from stateshift.specification.model import WAIVERS
from stateshift.specification.spec_keys import CLUSTER_KINDS, SPEC
from stateshift.specification.transform import (
    Change,
    Compact,
    Convert,
    Drop,
    Evolve,
    Merge,
    Rename,
    Repartition,
    Rewind,
    Split,
)

ROOT = Path(__file__).resolve().parents[2]

TEXT = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0@"), min_size=1, max_size=12
)
NAMES = (TEXT | st.sampled_from(["${A}", "$${A}", "a, b", "Aggregate (5)", "${"])).filter(str.strip)
SECONDS = st.integers(1, 10**6).map(lambda tenths: tenths / 8)
CARRIED = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)
OPTIONS = st.dictionaries(
    st.sampled_from(["master", "conf", "arguments", "find", "x y"]), CARRIED, max_size=3
)
SUBMITS = st.builds(
    SubmitSpec, OPTIONS, st.dictionaries(st.sampled_from(["A", "B_C"]), TEXT, max_size=2), SECONDS
)
STOPS = st.fixed_dictionaries(
    {}, optional={"seconds_max": SECONDS, "tag": NAMES, "signal": CARRIED}
)
ROOTS = st.sampled_from(
    ["file:///data", "hdfs://nn:8020/x", "s3a://bucket", "relative/a b", "file:///${A}"]
)
HASHES = st.sampled_from([HashProfile(), HashProfile("java-signed", signed=True)]) | st.builds(
    HashProfile,
    NAMES.filter(lambda name: name not in ("default", "java-signed")),
    st.integers(1, 99),
    st.integers(2, 10**10),
    st.integers(-99, 99),
    st.booleans(),
)


KAFKAS = st.none() | st.builds(
    KafkaSpec,
    st.sampled_from(["h:9092", "one:1,two:65535"]),
    st.none() | st.just("file:///client.properties"),
)
SOURCES = st.lists(
    st.builds(SourceSpec, st.just("delta"), st.just("s3a://lake/${A}")), max_size=2
).map(tuple)
SINKS = st.none() | st.sampled_from(
    [
        SinkSpec("delta", "s3a://lake/${A}"),
        SinkSpec("iceberg", "file:///lake"),
        SinkSpec("file", "hdfs://nn:8020/out"),
        SinkSpec("kafka"),
        SinkSpec("foreach-batch"),
        SinkSpec("foreach-batch", None, True),
        SinkSpec("foreach-batch", "s3a://lake/t", False, "orders"),
    ]
)


@st.composite
def flink_jobs(draw: Any, place: str, number: int) -> FlinkJob:
    existing = draw(
        st.sampled_from([(), (f"{place}/source",), (f"{place}/source", f"{place}/source2")])
    )
    return FlinkJob(
        job_ids=draw(st.sampled_from([(f"{number}a",), (f"{number}a", f"{number}b")])),
        existing_savepoints=existing,
        host="h",
        port=draw(st.integers(1, 65535)),
        target_directory=draw(st.none() | st.just(f"{place}/savepoints")),
        from_existing_savepoint=bool(existing),
        allow_non_restored_state=draw(st.booleans()),
        cancel_job=draw(st.booleans()),
        checkpoint_dir=draw(st.none() | st.just(f"{place}/checkpoints")),
    )


CHANGES: list[Change] = [
    Rewind(0, renumber=True),
    Compact(),
    Repartition(3),
    Convert(provider="rocksdb", checkpoint_format="v1"),
    Rename({"0": "1", "1": "0"}),
    Drop(sources=("1",)),
    Split(by=2, part=0),
    Split(column="country", values=("de", "", None)),
    Merge(("s3://b/other",), sum=("n",)),
    Evolve("0", add=({"name": "n", "type": "int", "default": 0},), widen={"a": "long"}),
    Evolve("0", store="left", drop=("b",), nullable_key=("id",)),
]


@st.composite
def job_specs(
    draw: Any,
    name: str,
    number: int,
    operators: tuple[OperatorSpec, ...],
    cluster: str,
    flink: bool,
) -> JobSpec:
    place = f"{draw(ROOTS)}/{number}"
    target, mode = draw(
        st.sampled_from([(None, "move"), (f"{place}/target", "move"), (f"{place}/target", "fork")])
    )
    merges = draw(st.sampled_from([(), (f"{place}/m",), (f"{place}/m, 1", f"{place}/m2")]))
    merges = () if flink or mode == "fork" else merges
    changed = target is not None and not merges
    submit = draw(st.none() | SUBMITS)
    return JobSpec(
        name=name,
        source=f"{place}/source",
        target=target,
        merge_locations=merges,
        connection=None if flink else draw(st.sampled_from([None, "h:7077", "spark://a:1,b:2"])),
        operators=operators,
        source_cluster=cluster if flink else draw(st.none() | st.just(cluster)),
        target_cluster=cluster if submit else draw(st.none() | st.just(cluster)),
        submit=submit,
        stop=draw(STOPS),
        transform=tuple(
            draw(
                st.lists(st.sampled_from(CHANGES), max_size=3, unique_by=lambda change: change.kind)
            )
        )
        if changed
        else (),
        data=draw(
            st.sampled_from(
                [
                    (),
                    (
                        DataSpec(f"{place}/in", "s3://b/in"),
                        DataSpec("file:///o", "file:///o/x", False),
                    ),
                ]
            )
        ),
        mode=mode,
        sync=mode != "fork" or draw(st.booleans()),
        verify=draw(st.sampled_from(["entries", "twice", "digests", "none"])),
        planned_batch=draw(st.sampled_from(["keep", "drop"])),
        kafka=None if flink else draw(KAFKAS),
        sources=() if flink else draw(SOURCES),
        sink=None if flink else draw(SINKS),
        also=() if flink else draw(st.sampled_from([(), ("mine",), ("a b/c", "${A}")])),
        keep=tuple(
            draw(st.lists(st.sampled_from(["owner", "permissions"]), max_size=2, unique=True))
        ),
        waive=tuple(draw(st.lists(st.sampled_from(sorted(WAIVERS)), max_size=2, unique=True))),
        flink=draw(flink_jobs(place, number)) if flink else None,
    )


RECEIVERS = st.sampled_from(
    [
        None,
        Receivers(failed=Receiver(("a b", "${A}", "")), ready=Receiver(url_variable="TEAM_URL")),
        Receivers(finished=Receiver(url_file="file:///etc/url", seconds_max=2.5)),
    ]
)


@st.composite
def specs(draw: Any) -> Spec:
    engine = draw(st.sampled_from(["spark", "flink"]))
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    uids = draw(st.lists(NAMES, max_size=3, unique=True))
    adopted = [
        OperatorSpec(uid, draw(st.none() | st.just(f"d{index}"))) for index, uid in enumerate(uids)
    ]
    clusters = draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
    jobs = [
        draw(
            job_specs(
                name, number, tuple(adopted) if number == 0 else (), clusters[0], engine == "flink"
            )
        )
        for number, name in enumerate(names)
    ]
    return Spec(
        engine=engine,
        jobs=tuple(jobs),
        restart=draw(st.booleans()),
        **draw(
            st.sampled_from(
                [
                    {"waves": (tuple(names),)},
                    {"waves": tuple((name,) for name in reversed(names))},
                    {},
                    *({"strategy": text} for text in ("fluid", "optimised", "batched(3)")),
                ]
            )
        ),
        on_failure=draw(st.sampled_from(["restart", "stop", "finish", "rollback", "discard"])),
        on=draw(RECEIVERS),
        clusters=tuple(
            ClusterSpec(name, draw(st.sampled_from(CLUSTER_KINDS)), draw(OPTIONS))
            for name in clusters
        ),
        uid_hash=draw(HASHES),
        production=draw(st.booleans()),
        parallel=draw(st.integers(1, 64)),
        bytes_per_second=draw(st.none() | SECONDS),
        operations_per_second=draw(st.none() | SECONDS),
    )


VALIDATOR = jsonschema.Draft202012Validator(spec_schema())


@settings(max_examples=150, deadline=None)
@given(specs())
def test_what_is_written_is_read_again_and_fits_the_schema(spec: Spec) -> None:
    plain = to_plain_spec(spec)
    assert parse_spec(json.dumps(plain)) == spec
    assert (
        parse_spec(json.dumps(plain, sort_keys=True), base="/other" if _absolute(spec) else None)
        == spec
    )
    assert to_plain_spec(parse_spec(json.dumps(plain))) == plain


@settings(max_examples=40, deadline=None)
@given(specs().filter(lambda spec: all(not cluster.options for cluster in spec.clusters)))
def test_what_is_written_fits_the_schema(spec: Spec) -> None:
    plain = to_plain_spec(spec)
    for job in plain["jobs"]:
        job.pop(
            "submit", None
        )  # carried as given: the schema knows the shapes that the adapters check
    VALIDATOR.validate(plain)


def _absolute(spec: Spec) -> bool:
    return all("://" in job.source for job in spec.jobs)


KEYS = st.sampled_from(
    [key.name for key in (*SPEC.all, *JOB.all)] + ["job name", "Merge Jobs", "kind", "source", "p"]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            "/a",
            "s3://b",
            "h:1",
            "true",
            "${A}",
            "${",
            "spark",
            "flink",
            "x://u:p@h",
            10**400,
            "\ud800",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=25,
)
JOBS = st.lists(st.dictionaries(KEYS, JSON, max_size=8), max_size=3)


@settings(max_examples=400, deadline=None)
@given(
    JSON
    | st.dictionaries(KEYS, JSON, max_size=6)
    | st.fixed_dictionaries({"jobs": JOBS | JSON, "version": JSON})
)
@example({"jobs": {"": {}, "\ud800": {}}})
@example(
    {
        "jobs": [{"name": "a", "checkpoint_location": "/a"}],
        "throttle": {"bytes_per_second": 10**400},
    }
)
def test_any_json_is_read_or_refused_with_a_spec_error(value: Any) -> None:
    _read_or_refused(json.dumps(value))


@settings(max_examples=300, deadline=None)
@given(st.text() | st.text('{}[]",:\\ae10.-', max_size=40))
def test_any_text_is_read_or_refused_with_a_spec_error(text: str) -> None:
    _read_or_refused(text)


def _read_or_refused(text: str) -> None:
    try:
        spec = parse_spec(text, base="/base", environment={"A": "a"})
    except SpecError as error:
        assert error.complaints
        json.dumps(error.as_json(), allow_nan=False).encode()
        str(error).encode()
    else:
        assert parse_spec(json.dumps(to_plain_spec(spec))) == spec


def test_importing_the_spec_brings_nothing_heavy_along() -> None:
    code = "import sys, stateshift.specification; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    heavy = {
        "fsspec",
        "rich",
        "typer",
        "pyspark",
        "hdfs",
        "mmh3",
        "jsonschema",
        "urllib.parse",
        "subprocess",
    }
    assert not heavy & set(done.stdout.split())
