"""The `spark-submit` that is meant, and its version: read from files, without Java or pyspark.

A Spark home is recognised by one of these (pyspark from PyPI has the first and the last, a binary
release the others):

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
_VERSION_FILES = (
    ("version.py", _VERSION),
    ("python/pyspark/version.py", _VERSION),
    ("RELEASE", _RELEASE),
)
_CORE = re.compile(r"spark-core_[\d.]+-(.+)\.jar")


def installed_pyspark() -> Path | None:
    """Return the directory of the pyspark that this Python would import."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        return None
    return Path(spec.origin).parent


def executable(given: str | None) -> Path:
    """Return the `spark-submit` that is given, else pyspark's, SPARK_HOME's, or the PATH's."""
    if given is not None:
        path = shutil.which(os.path.expanduser(given))
        if path is None:
            raise ClusterError(
                f"no executable {given}",
                hint="correct the cluster's option spark_submit, or leave it out",
            )
        return Path(path).absolute()
    homes = [installed_pyspark()]
    if os.environ.get("SPARK_HOME"):
        homes.append(Path(os.environ["SPARK_HOME"]))
    for home in homes:
        if home is not None and (home / "bin" / "spark-submit").is_file():
            return home / "bin" / "spark-submit"
    path = shutil.which("spark-submit")
    if path is None:
        raise ClusterError(
            "no spark-submit: not in an installed pyspark, not in SPARK_HOME, not on the PATH",
            hint="pip install pyspark, or set the cluster's option spark_submit",
        )
    return Path(path)


def home_of(submit: Path) -> Path | None:
    """Return the Spark home that an executable belongs to; None if it does not lie in one (a script
    of somebody's own).
    """
    above = submit.resolve().parent.parent
    pip = sorted(above.glob("lib/python3*/site-packages/pyspark"))
    for place in (above, *pip):
        if (place / "jars").is_dir():
            return place
    return None


def version_of(submit: Path) -> str | None:
    """Return the version of Spark that an executable starts; None if nothing says it."""
    home = home_of(submit)
    if home is None:
        return None
    for name, pattern in _VERSION_FILES:
        path = home / name
        if path.is_file():
            version = pattern.search(path.read_text("utf-8", "replace"))
            if version:
                return version[1]
    jars = sorted((home / "jars").glob("spark-core_*.jar"))
    names = (_CORE.fullmatch(jar.name) for jar in jars)
    return next((name[1] for name in names if name), None)
