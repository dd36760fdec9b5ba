"""What a person cannot guess is in the message of what they tried first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.submit import TAKES
from stateshift.clusters.protocol import StopRequest
from stateshift.clusters.stopping import stop_options
from stateshift.engines.flink.findings.move import of_changes
from stateshift.engines.flink.rewrite.move import Move
from stateshift.errors import SpecError
from stateshift.survey import Facts, Survey
from tests.cli.support import said
from tests.engines.flink.test_moving import spec_of

WAIVED = ("--waive", "job-stopped", "--waive", "paths-stay")
SOURCE = "file:///here/savepoint-1"
GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def complaints(**keys: Any) -> str:
    with pytest.raises(SpecError) as refused:
        spec_of(SOURCE, **keys)
    return "\n".join(str(complaint) for complaint in refused.value.complaints)


@pytest.mark.parametrize("kind", ["rescal", "parallelism", "scale"])
def test_the_kind_rescale_is_named_where_a_kind_is_not_known(kind: str) -> None:
    assert "rescale" in complaints(transform=[{"kind": kind, "parallelism": 2}])


@pytest.mark.parametrize("kind", ["command", "manual"])
def test_a_savepoint_in_files_is_moved_by_nobody_who_was_to_stop_its_job(
    kind: str, tmp_path: Path
) -> None:
    """No plan would have the job stopped: it would run on beside the one that starts from it."""
    image, log = tmp_path / "image", tmp_path / "log"
    shutil.copytree(GOLDEN / "flink-1.20.5" / "count-canonical-hashmap" / "image", image)
    commands = {"submit": f"echo start >> {log}", "stop": f"echo stop >> {log}"}
    spec = {
        "version": 1,
        "engine": "flink",
        "clusters": {
            "old": {"kind": kind, **(commands if kind == "command" else {})},
            "new": {"kind": "command", **commands},
        },
        "jobs": [
            {
                "name": "sums",
                "checkpoint_location": str(image),
                "remote_location": str(tmp_path / "moved"),
                "source_cluster": "old",
                "target_cluster": "new",
                "submit": {},
            }
        ],
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    ran = said("apply", str(tmp_path / "spec.json"), "--yes", "--workdir", str(tmp_path / "run"))
    assert ran.code == 4, ran.err
    assert f"old ({kind}) is not asked to stop sums" in ran.err
    assert not log.exists()


def move_of(change: dict[str, Any]) -> Move:
    spec = spec_of(SOURCE, transform=[change])
    survey = Survey(SOURCE, "flink", "empty", (), ())
    return Move(spec, spec.jobs[0], Facts(survey, survey))


def test_rescale_is_offered_as_it_is_written_where_a_repartition_is_asked_for() -> None:
    change = {"kind": "repartition", "partitions": 4}
    (found,) = of_changes(move_of(change))
    offered = str(found.hint).partition(" is what")[0]
    assert json.loads(offered)["kind"] == "rescale"
    assert list(of_changes(move_of(json.loads(offered)))) == []


@pytest.mark.parametrize(
    ("options", "named"), [({"format": "binary"}, "native"), ({"formt": "native"}, "format")]
)
def test_how_a_savepoint_is_asked_for_is_named_where_it_is_asked_for_wrongly(
    options: dict[str, Any], named: str
) -> None:
    request = StopRequest("orders", SOURCE, options=options)
    with pytest.raises(SpecError) as refused:
        stop_options(request, {}, TAKES.stop, {})
    assert any(named in str(complaint) for complaint in refused.value.complaints)
