"""Engines, cluster kinds, storages and kinds of sources of other packages: installed as a package
is, found by their names.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stateshift import api, extensions, look
from stateshift.clusters.kind import check_submit, kind_names, open_cluster
from stateshift.clusters.protocol import JobState
from stateshift.engines.protocol import Engine
from stateshift.engines.registry import METHODS, Entries, Transforms, engine, engine_names
from stateshift.errors import PlanError, SpecError, StateshiftError, StorageError
from stateshift.formats.flink.operator_state import ConnectorState
from stateshift.sources.kind import FlinkSource
from stateshift.sources.kinds import of_flink, of_spark, positions_of, step_back, words_of
from stateshift.specification import ClusterSpec, parse_spec
from stateshift.storage.opening import open_patiently, open_storage
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import Checkpoint, held, put
from tests.support.moving import said

TOY_ENGINE = '''
from stateshift.engines.spark.engine import SparkEngine
from stateshift.engines.views import DecodedFile
from stateshift.survey import Image, Survey


class ToyEngine(SparkEngine):
    """An image is one file, TOY, that holds a number of entries."""

    name = "toy"
    begins_with = "TOY"

    def survey(self, location, opening, thorough=False, changes=()):
        storage = opening(location)
        files = tuple(storage.list())
        images = ()
        if self.recognises(storage):
            images = (Image("", None, "toy", 1, (1,), None, *[()] * 6, {}, None),)
        return storage, Survey(storage.location, "toy", "image", files, images)

    def decode_file(self, storage, name, location, opening):
        text = b"".join(storage.chunks(name)).decode()
        return DecodedFile(name, "toy", (text,), {"entries": int(text)})

    def transforms(self):
        return {"toy.double": lambda parameters, sources: list(sources) * 2}

    def entries_reader(self):
        return lambda read, shard, settings: iter(())


ENGINE = ToyEngine()
'''

TOY_CLUSTER = """
from stateshift.clusters.kind import ClusterKind, submit_options
from stateshift.testing.memory_cluster import MemoryCluster
from stateshift.clusters.options import NEEDED_TEXT, TEXT


def open_toy(name, options, surroundings):
    assert surroundings.workdir.is_absolute()
    cluster = MemoryCluster(name)
    cluster.kind = "toy"
    return cluster


KIND = ClusterKind("toy", {"address": NEEDED_TEXT}, open_toy, submit_options({"image": TEXT}))
"""

TOY_STORAGE = '''
import os

from stateshift.storage.local.storage import LocalStorage


class ToyStorage(LocalStorage):
    """`toy://shelf/path` is the directory shelf/path below $TOY."""

    def __init__(self, location):
        super().__init__(os.environ["TOY"] + location.removeprefix("toy:/"))
        self._toy_location = location

    @property
    def location(self):
        return self._toy_location


def open_storage(location):
    return ToyStorage(location)
'''

TOY_SOURCE = """
from stateshift.sources.kind import SourceKind, SourcePosition


def of_spark(offset, has_log):
    if not isinstance(offset, dict) or "shelves" not in offset:
        return None
    return {"shelves": offset["shelves"]}


def of_flink(source):
    if not source.splits or any(split.version != 77 for split in source.splits):
        return None
    return {"shelves": {split.content.decode(): split.version for split in source.splits}}


def positions(details):
    for shelf, book in sorted(details["shelves"].items()):
        yield SourcePosition(shelf, book)


def words(details, every):
    return f"{len(details['shelves'])} shelves"


def step_back(older, newer):
    for shelf, book in older["shelves"].items():
        if newer["shelves"].get(shelf, book) < book:
            return f"{shelf} {book} to {newer['shelves'][shelf]}"


KIND = SourceKind("toy", True, of_spark, of_flink, positions, words, step_back)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package where Python finds it, with the metadata that an installer writes."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def add(package: str, group: str, entry: str, source: str | None) -> None:
        module = package.replace("-", "_")
        if source is not None:
            (site / f"{module}.py").write_text(source)
        folder = site / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, module, raising=False)

    return add


def spec_of(**top: object) -> str:
    job = {"name": "orders", "checkpoint_location": "file:///a", "remote_location": "file:///b"}
    return json.dumps({"version": 1, "jobs": [job], **top})


# ------------------------------------------------------------------------------------- engines


def test_an_engine_of_another_package_is_known_by_its_name(install: Install) -> None:
    assert engine_names() == ("spark", "flink")
    install("toy-engine", extensions.ENGINES, "toy = toy_engine:ENGINE", TOY_ENGINE)
    assert engine_names() == ("spark", "flink", "toy")
    assert "toy_engine" not in sys.modules
    assert engine("toy").begins_with == "TOY"
    assert Transforms()["toy.double"]({}, ["a"]) == ["a", "a"]  # type: ignore[list-item]
    assert list(Entries()) == ["spark", "flink", "toy"]
    with pytest.raises(KeyError):
        Transforms()["tin.double"]


def test_a_spec_may_name_an_engine_of_another_package_once_it_is_installed(
    install: Install,
) -> None:
    text = spec_of(engine="toy")
    with pytest.raises(SpecError, match=r'"toy" is not one of spark, flink$'):
        parse_spec(text, names_added=extensions.names_added)
    install("toy-engine", extensions.ENGINES, "toy = toy_engine:ENGINE", TOY_ENGINE)
    assert parse_spec(text, names_added=extensions.names_added).engine == "toy"
    with pytest.raises(SpecError, match='"tin" is not one of spark, flink, toy'):
        parse_spec(spec_of(engine="tin"), names_added=extensions.names_added)


@pytest.mark.row("W-17")
def test_an_image_of_another_package_s_engine_is_recognised_and_inspected(
    install: Install,
) -> None:
    disk = MemoryDisk(lambda: 0.0)
    put(disk.open("file:///toys/1"), "TOY", b"42")
    assert look.inspect("file:///toys/1", disk.open).survey.engine != "toy"  # type: ignore[union-attr]
    install("toy-engine", extensions.ENGINES, "toy = toy_engine:ENGINE", TOY_ENGINE)
    found = look.inspect("file:///toys/1", disk.open).survey
    assert found is not None
    assert (found.engine, found.images[0].identity) == ("toy", "toy")
    single = look.inspect("file:///toys/1/TOY", disk.open).file
    assert single is not None
    assert single.value == {"entries": 42}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "ModuleNotFoundError: No module named 'toy_engine'"),
        ("import no_such_library", "No module named 'no_such_library'"),
        ("1 / 0", "ZeroDivisionError"),
        ("OTHER = 1", "AttributeError: module 'toy_engine' has no attribute 'ENGINE'"),
        ("ENGINE = 1", "is no engine: it has no name, begins_with"),
        (
            TOY_ENGINE.replace('name = "toy"', 'name = "tin"'),
            "calls itself 'tin'",
        ),
    ],
)
def test_a_broken_engine_of_another_package_is_an_error_with_a_way_out(
    install: Install, source: str | None, says: str
) -> None:
    install("toy-engine", extensions.ENGINES, "toy = toy_engine:ENGINE", source)
    with pytest.raises(PlanError) as raised:
        engine("toy")
    assert says in raised.value.fact
    assert "python -m pip show toy-engine" in (raised.value.hint or "")
    assert "python -m pip uninstall toy-engine" in (raised.value.hint or "")


@pytest.mark.parametrize("place", ["file:///a", "file:///a/notes.txt", "file:///nothing"])
def test_an_engine_that_fails_when_asked_whose_an_image_is_is_left_out(
    install: Install, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    failing = TOY_ENGINE.replace(
        "    def transforms(",
        "    def recognises(self, storage):\n        1 / 0\n\n    def transforms(",
    )
    disk = MemoryDisk(lambda: 0.0)
    put(disk.open("file:///a"), "notes.txt", b"nobody's")

    def looked_at() -> object:
        try:
            return look.inspect(place, disk.open)
        except StateshiftError as error:
            return (error.fact, error.hint)

    without = looked_at()
    install("toy-engine", extensions.ENGINES, "toy = toy_engine:ENGINE", failing)
    assert repr(looked_at()) == repr(without)
    assert "engine toy cannot tell whether" in caplog.text


def test_a_broken_package_does_not_keep_anybody_from_looking_at_an_image(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("toy-engine", extensions.ENGINES, "toy = toy_engine:ENGINE", "1 / 0")
    disk = MemoryDisk(lambda: 0.0)
    put(disk.open("file:///a"), "metadata", b'{"id":"7c6f0e3e-0000-4000-8000-000000000000"}')
    found = look.inspect("file:///a", disk.open).survey
    assert found is not None
    assert found.engine == "spark"
    put(disk.open("file:///b"), "something", b"x")
    assert look.inspect("file:///b", disk.open).survey is not None
    assert "toy_engine" in caplog.text


def test_two_packages_of_one_name_are_refused_and_ours_cannot_be_replaced(
    install: Install,
) -> None:
    install("toy-engine", extensions.ENGINES, "toy = toy_engine:ENGINE", TOY_ENGINE)
    install("toy-more", extensions.ENGINES, "toy = toy_more:ENGINE\nspark = toy_more:ENGINE", "1/0")
    with pytest.raises(PlanError, match="toy-engine and toy-more both add 'toy'"):
        engine("toy")
    assert type(engine("spark")).__name__ == "SparkEngine"


@pytest.mark.parametrize("name", ["spark", "flink"])
def test_our_own_engines_keep_the_protocol_that_others_are_held_to(name: str) -> None:
    assert [method for method in METHODS if not hasattr(engine(name), method)] == []
    assert all(getattr(Engine, method).__doc__ for method in METHODS)


# ------------------------------------------------------------------------------------- clusters


@pytest.mark.row("W-17")
def test_a_cluster_kind_of_another_package_is_parsed_checked_and_opened(
    install: Install, tmp_path: Path
) -> None:
    text = spec_of(clusters={"home": {"kind": "toy", "address": "a:1"}})
    with pytest.raises(SpecError, match='"toy" is not one of manual, command'):
        parse_spec(text, names_added=extensions.names_added)
    install("toy-cluster", extensions.CLUSTERS, "toy = toy_cluster:KIND", TOY_CLUSTER)
    assert kind_names()[-1] == "toy"
    spec = parse_spec(text, names_added=extensions.names_added).cluster("home")
    assert spec == ClusterSpec("home", "toy", {"address": "a:1"})
    cluster = open_cluster(spec, str(tmp_path))
    assert (cluster.name, cluster.kind) == ("home", "toy")
    assert cluster.find("tag").state is JobState.ABSENT
    check_submit(spec, {"image": "x"}, "/jobs/0/submit")
    with pytest.raises(SpecError, match="/jobs/0/submit/imag: unknown option 'imag'"):
        check_submit(spec, {"imag": "x"}, "/jobs/0/submit")
    with pytest.raises(SpecError, match="/clusters/home/address: is needed and not there"):
        open_cluster(ClusterSpec("home", "toy"), str(tmp_path))


@pytest.mark.parametrize(
    ("source", "says"),
    [("1 / 0", "ZeroDivisionError"), ("KIND = 1", "is no ClusterKind, but a int")],
)
def test_a_broken_cluster_kind_is_an_error_with_a_way_out(
    install: Install, tmp_path: Path, source: str, says: str
) -> None:
    install("toy-cluster", extensions.CLUSTERS, "toy = toy_cluster:KIND", source)
    with pytest.raises(PlanError, match=says) as raised:
        open_cluster(ClusterSpec("home", "toy"), str(tmp_path))
    assert "python -m pip uninstall toy-cluster" in (raised.value.hint or "")


# ------------------------------------------------------------------------------------- storages


def install_storage(install: Install, source: str | None = TOY_STORAGE) -> None:
    install("toy-storage", extensions.STORAGES, "toy = toy_storage:open_storage", source)


@pytest.mark.row("W-17")
def test_a_storage_of_another_package_is_opened_for_its_scheme(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY", str(tmp_path))
    with pytest.raises(StorageError, match="no installed package opens toy:"):
        open_storage("toy://shelf/1")
    install_storage(install)
    open_storage("file:///a")
    assert "toy_storage" not in sys.modules
    put(open_storage("TOY://shelf/1/"), "a/b", b"42")
    storage = open_patiently("toy://shelf/1")
    assert storage.location == "toy://shelf/1"
    assert [file.path for file in storage.list()] == ["a/b"]
    assert storage.read("a/b") == b"42"


@pytest.mark.long
def test_an_image_in_a_storage_of_another_package_is_inspected_and_moved(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_storage(install)
    monkeypatch.setenv("TOY", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    Checkpoint().write(open_storage("toy://shelf/old"))
    found = look.inspect("toy://shelf/old", open_patiently).survey
    assert found is not None
    assert found.engine == "spark"
    job = {"name": "orders", "checkpoint_location": "toy://shelf/old"}
    spec = tmp_path / "spec.json"
    spec.write_text(
        json.dumps({"version": 1, "jobs": [job | {"remote_location": "toy://shelf/new"}]})
    )
    run = str(tmp_path / "run")
    assert said({}, "apply", str(spec), "--yes", "--workdir", run)["state"] == "finished"
    assert held(open_storage("toy://shelf/new")).items() <= Checkpoint().files().items()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "ModuleNotFoundError: No module named 'toy_storage'"),
        ("1 / 0", "ZeroDivisionError"),
        ("open_storage = 1", "is no function that opens a location, but a int"),
        ("open_storage = str", "opens no storage: it has no location, traits, list, stat, read"),
    ],
)
def test_a_broken_storage_of_another_package_is_an_error_with_a_way_out(
    install: Install, source: str | None, says: str
) -> None:
    install_storage(install, source)
    with pytest.raises(PlanError) as raised:
        open_storage("toy://shelf/1")
    assert says in raised.value.fact
    assert "python -m pip uninstall toy-storage" in (raised.value.hint or "")


def test_a_scheme_of_ours_is_not_opened_by_another_package(install: Install) -> None:
    entries = "\n".join(f"{scheme} = toy_storage:open_storage" for scheme in ("file", "memory"))
    install("toy-storage", extensions.STORAGES, entries, "1 / 0")
    assert type(open_storage("/a")).__name__ == "LocalStorage"
    assert type(open_storage("memory://m/a")).__name__ == "FsspecStorage"


# ------------------------------------------------------------------------------------- sources


def install_source(install: Install, source: str | None = TOY_SOURCE) -> None:
    install("toy-source", extensions.SOURCES, "toy = toy_source:KIND", source)


def checkpoint_of(location: str, offset: object) -> str:
    job, storage = Checkpoint(batches=1), open_storage(location)
    job.write(storage)
    kept, _ = job.offsets(0).rsplit(b"\n", 1)
    put(storage, "offsets/0", kept + b"\n" + json.dumps(offset).encode())
    return location


@pytest.mark.row("W-17")
def test_a_source_of_another_package_is_shown_by_its_kind(install: Install, tmp_path: Path) -> None:
    here = checkpoint_of(f"file://{tmp_path}/job", {"shelves": {"b": 7, "a": 9}})
    install_source(install)
    kafka = checkpoint_of(f"file://{tmp_path}/kafka", {"t": {"0": 1}, "u": {"0": 1}})
    assert api.inspect(kafka).to_dict()["images"][0]["endpoints"][0]["kind"] == "kafka"
    assert "toy_source" not in sys.modules, "nobody needs it"
    shown = api.inspect(here, sources=True)
    document = shown.to_dict()
    (source,) = document["images"][0]["endpoints"]
    assert (source["kind"], source["replayable"]) == ("toy", True)
    assert source["details"] == {"shelves": {"a": 9, "b": 7}}
    assert [(at["partition"], at["position"]) for at in document["sources"]] == [("a", 9), ("b", 7)]
    text = said_in_text("inspect", here, "--sources", site=tmp_path / "site-packages")
    assert re.search(r"toy +can be read again +2 shelves", text)


def said_in_text(*words: str, site: Path) -> str:
    command = [sys.executable, "-m", "stateshift", *words]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_flink_source_of_another_package_is_recognised(install: Install) -> None:
    install_source(install)
    source = of_flink(FlinkSource((ConnectorState(77, b"a"),)))
    assert (source.kind.name, source.details) == ("toy", {"shelves": {"a": 77}})
    assert of_flink(FlinkSource((ConnectorState(78, b"a"),))).kind.name == "unknown"


def test_offsets_of_another_package_are_compared_by_its_kind(install: Install) -> None:
    install_source(install)
    assert step_back('{"shelves": {"a": 4}}', '{"shelves": {"a": 3}}') == "a 4 to 3"
    assert step_back('{"shelves": {"a": 4}}', '{"none": 1}') is None


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "No module named 'toy_source'"),
        ("1 / 0", "ZeroDivisionError"),
        ("KIND = 1", "is no SourceKind of the name 'toy'"),
        (TOY_SOURCE.replace("in offset:", "in 1 / 0:"), "ZeroDivisionError"),
        (TOY_SOURCE.replace('"toy"', '"kafka"'), "is no SourceKind of the name 'toy'"),
    ],
)
def test_a_broken_kind_of_source_is_left_out(
    install: Install, source: str | None, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    install_source(install, source)
    assert of_spark({"shelves": {"a": 1}}, has_log=False).kind.name == "unknown"
    assert says in caplog.text


def test_a_kind_that_cannot_show_its_positions_shows_none(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install_source(install)
    assert positions_of("toy", {}) == ()
    assert words_of("toy", {}) == ""
    assert "the kind of source 'toy' is left out: KeyError('shelves')" in caplog.text


def test_a_kind_of_ours_is_not_replaced_by_another_package(install: Install) -> None:
    install("toy-source", extensions.SOURCES, "kafka = toy_source:KIND", "1 / 0")
    assert of_spark({"unknown": 1}, has_log=False).kind.name == "unknown"
