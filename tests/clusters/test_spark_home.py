"""The version of a Spark, told by its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateshift.clusters.spark_submit.cluster import version_of


def _home(path: Path, files: dict[str, str]) -> Path:
    for name, content in {"bin/spark-submit": "", "jars/x.jar": "", **files}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    return path / "bin" / "spark-submit"


@pytest.mark.parametrize(
    "files",
    [
        {"version.py": '# x\n__version__: str = "3.5.9"\n'},
        {"python/pyspark/version.py": "__version__ = '3.5.9'\n"},
        {"RELEASE": "Spark 3.5.9 (git revision abc) built for Hadoop 3.3.4\nBuild flags: -B\n"},
        {"jars/spark-core_2.12-3.5.9.jar": ""},
    ],
)
def test_each_kind_of_spark_home_tells_its_version(tmp_path: Path, files: dict[str, str]) -> None:
    assert version_of(_home(tmp_path, files)) == "3.5.9"


def test_a_script_of_ones_own_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    assert version_of(tmp_path / "bin" / "spark-submit") is None


def test_the_script_that_pip_installs_belongs_to_the_pyspark_beside_it(tmp_path: Path) -> None:
    _home(
        tmp_path / "lib/python3.11/site-packages/pyspark",
        {"version.py": '__version__: str = "4.3.0"'},
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    assert version_of(tmp_path / "bin" / "spark-submit") == "4.3.0"
