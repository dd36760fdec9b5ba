"""Savepoints and checkpoints that nobody here wrote: those that Flink's own tests restore. Flink
restores all of them, so none is refused. Headers of a Flink before 1.7 are not read, which is said.
"""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.cli.support import said
from tests.support.servers import Unavailable, downloads


@pytest.fixture(scope="module", params=["1.15.4", "1.20.0", "2.0.0", "2.3.0"])
def images(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The folders of all images in the tests of one version."""
    folder = tmp_path_factory.mktemp("flink-tests")
    try:
        jars = downloads.jars("flink-tests", flink=request.param)
    except Unavailable as reason:
        pytest.skip(f"the tests of Flink {request.param} cannot be had: {reason}")
    for jar in jars.glob("*.jar"):
        with ZipFile(jar) as archive:
            resources = [name for name in archive.namelist() if not name.endswith(".class")]
            archive.extractall(folder, resources)
    found = [metadata.parent for metadata in sorted(folder.rglob("_metadata"))]
    assert len(found) > 100
    return found


def refusals(image: Path) -> list[str]:
    """What `verify --deep` refuses; its exit code says the same."""
    shown = said("verify", str(image), "--deep", "--json")
    findings = shown.document["findings"]
    refused = [finding["message"] for finding in findings if finding["level"] == "refuse"]
    assert (shown.code == 0) == (not refused), image
    return refused


@pytest.mark.slow
@pytest.mark.row("W-2")
def test_what_flink_restores_is_not_refused(images: list[Path]) -> None:
    refused = {image.name: refusals(image) for image in images}
    assert {name: facts for name, facts in refused.items() if facts} == {}


@pytest.mark.slow
@pytest.mark.row("IF-8", "IF-11")
def test_what_flink_restores_comes_through_a_gathering_with_the_same_state(
    images: list[Path], tmp_path: Path
) -> None:
    different = []
    for number, image in enumerate(images):
        target = tmp_path / str(number)
        gathered = said("gather", str(image), "--to", str(target), "--yes", "--json")
        if gathered.code or said("diff", str(image), str(target), "--json").code:
            different.append(image.name)
    assert different == []
