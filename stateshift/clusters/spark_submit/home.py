"""Which `spark-submit` is meant, and of which version it is: found out by looking at files, without
Java or pyspark.

A Spark home is told by one of these (pyspark from PyPI has the first and the last, a binary release
the others):

    python/pyspark/version.py, pyspark/version.py     __version__: str = "4.3.0"
    RELEASE                                           Spark 4.3.0 built for Hadoop 3.4.2
    jars/spark-core_2.13-4.3.0.jar
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

from stateshift.errors import ClusterError

_VERSION = re.compile(r"__version__[^=\n]*=\s*[\"']([^\"']+)[\"']")
_RELEASE = re.compile(r"Spark (\S+)")
_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def installed_pyspark() -> Path | None:
    """The directory of the pyspark that this Python would import."""
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def executable(given: str | None) -> Path:
    """The `spark-submit` that is given, else pyspark's, else the one of SPARK_HOME or on the
    PATH.
    """
    if given is not None:
        path = shutil.which(os.path.expanduser(given))
        if path is None:
            raise ClusterError(
                f"no executable {given}",
                hint="correct the cluster's option spark_submit, or leave it out",
            )
        return Path(path).absolute()
    places = [
        installed_pyspark(),
        Path(os.environ["SPARK_HOME"]) if os.environ.get("SPARK_HOME") else None,
    ]
    for place in places:
        if place is not None and (place / "bin" / "spark-submit").is_file():
            return place / "bin" / "spark-submit"
    path = shutil.which("spark-submit")
    if path is None:
        raise ClusterError(
            "no spark-submit: not in an installed pyspark, not in SPARK_HOME, not on the PATH",
            hint="pip install pyspark, or set the cluster's option spark_submit",
        )
    return Path(path)


def home_of(submit: Path) -> Path | None:
    """The Spark home that an executable belongs to; None where it does not lie in one (a script
    of somebody's own).
    """
    above = submit.resolve().parent.parent
    pip = sorted(above.glob("lib/python3*/site-packages/pyspark"))
    for place in (above, *pip):
        if (place / "jars").is_dir():
            return place
    return None


def version_of(submit: Path) -> str | None:
    home = home_of(submit)
    if home is None:
        return None
    for path, pattern in (
        (home / "version.py", _VERSION),
        (home / "python" / "pyspark" / "version.py", _VERSION),
        (home / "RELEASE", _RELEASE),
    ):
        found = pattern.search(path.read_text("utf-8", "replace")) if path.is_file() else None
        if found:
            return found[1]
    names = (
        _CORE.fullmatch(path.name) for path in sorted((home / "jars").glob("spark-core_*.jar"))
    )
    return next((name[1] for name in names if name), None)
