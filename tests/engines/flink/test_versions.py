"""Operator state since Flink 1.18 has a header that older ones refuse ("Incompatible version: found
6, compatible versions are [5, 4, 3, 2, 1]"): no plan leads there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from stateshift.engines.flink.findings.taking import of_taking
from stateshift.engines.flink.image import flink_facts
from stateshift.engines.flink.rewrite.move import Move
from stateshift.errors import PlanError
from stateshift.specification import Spec, parse_spec
from stateshift.survey import ClusterFacts, Facts, Survey
from tests.engines.flink import golden
from tests.support.ground import Ground

TARGET = "file:///there/orders"
CLUSTERS = {"old": {"kind": "command", "find": "f", "submit": "s", "stop": "t"}}
COUNTED = "count-canonical-rocksdb"
RUNNING = {"job_ids": ["id"], "source_cluster": "old", "target_directory": "file:///taken"}


def spec_of(**job: Any) -> Spec:
    """A spec of one job that goes to TARGET."""
    whole = {"name": "orders", "new_savepoint_path": TARGET, **job}
    document = {"version": 1, "engine": "flink", "clusters": CLUSTERS, "jobs": [whole]}
    return parse_spec(json.dumps(document))


def converted_for(source: str, flink: str, *operators: str) -> Spec:
    """A spec that writes an image, or some of its operators, for a Flink."""
    change = {"kind": "convert", "flink": flink}
    return spec_of(existing_savepoint_paths=[source], transform=[change], operators=operators)


@pytest.mark.parametrize(
    ("flink", "version"),
    [("1.15.4", 5), ("1.18.1", 6), ("1.20.5", 6), ("2.0.2", 6), ("2.3.0", 6)],
)
def test_the_version_of_operator_state_is_read_of_an_image(
    ground: Ground, flink: str, version: int
) -> None:
    source = golden.write(ground.disk, f"flink-{flink}/{COUNTED}")
    _, survey = golden.looked_at(ground.disk, source)
    assert set(flink_facts(survey.images[0]).operator_states.values()) == {version}


@pytest.mark.row("IF-18")
@pytest.mark.parametrize("flink", ["1.15", "1.16.3", "1.17"])
@pytest.mark.parametrize("written", ["1.18.1", "2.3.0"])
def test_operator_state_that_an_older_flink_does_not_read_is_refused(
    ground: Ground, written: str, flink: str
) -> None:
    source = golden.write(ground.disk, f"flink-{written}/{COUNTED}")
    before = ground.disk.snapshot()
    with pytest.raises(PlanError, match=f"is in version 6, and Flink {flink} reads up to"):
        ground.apply(converted_for(source, flink))
    assert ground.disk.snapshot() == before


@pytest.mark.row("IF-18")
def test_operator_state_that_stays_behind_hinders_nothing(ground: Ground) -> None:
    source = golden.write(ground.disk, f"flink-2.3.0/{COUNTED}")
    assert ground.apply(converted_for(source, "1.17", "orders-count")).state == "finished"


@pytest.mark.row("IF-18")
@pytest.mark.parametrize(("written", "flink"), [("1.15.4", "1.15"), ("2.3.0", "1.18")])
def test_operator_state_that_a_flink_reads_is_written_for_it(
    ground: Ground, written: str, flink: str
) -> None:
    source = golden.write(ground.disk, f"flink-{written}/{COUNTED}")
    assert ground.apply(converted_for(source, flink)).state == "finished"


@pytest.mark.row("IF-18")
@pytest.mark.parametrize(
    ("here", "there", "refused"),
    [
        ("2.3.0", "1.17.2", True),
        ("1.20.5", "1.15.4", True),
        ("1.17.2", "1.16.3", False),
        ("2.3.0", "1.18.1", False),
        (None, "1.17.2", False),
        ("2.3.0", None, False),
    ],
)
def test_a_job_is_not_stopped_for_a_savepoint_that_the_other_flink_does_not_read(
    here: str | None, there: str | None, refused: bool
) -> None:
    spec = spec_of(**RUNNING)
    clusters = [
        ClusterFacts(name, "flink_rest", version, "running", None)
        for name, version in (("old", here), ("new", there))
    ]
    places = [Survey(at, None, "empty", (), (), ()) for at in ("file:///taken", TARGET)]
    facts = Facts(
        source=places[0],
        target=places[1],
        source_cluster=clusters[0],
        target_cluster=clusters[1],
    )
    waivers = [finding.waive for finding in of_taking(Move(spec, spec.jobs[0], facts))]
    assert ("operator-state" in waivers) == refused
