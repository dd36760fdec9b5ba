"""What of a start of a Spark job can be tried without starting it: is the application there, does
its jar have the class. What a worker or another machine reads from its own disk is not known here.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from stateshift.clusters.jars import complaints_about
from stateshift.clusters.protocol import Trial
from stateshift.clusters.stopping import OpenStorage
from stateshift.errors import StateshiftError

# Schemes of storages that everybody sees alike.
_SHARED = ("hdfs", "viewfs", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasbs")


def try_application(
    application: str, main_class: str | None, open_storage: OpenStorage | None, is_here: bool
) -> Trial:
    """Look for an application. `is_here`: its path is one of this machine."""
    scheme, _, rest = application.rpartition(":")
    if "{" in application:
        return Trial(untried=f"{application} is known only when it is started")
    if scheme in _SHARED and open_storage is not None:
        folder, _, name = application.rpartition("/")
        try:
            if open_storage(folder).stat(name) is None:
                return Trial(f"there is no {application}", 'correct "application"')
        except StateshiftError as error:
            return Trial(untried=f"{application} cannot be looked at from here: {error.fact}")
        return Trial()
    if not is_here or scheme not in ("", "file"):
        return Trial(untried=f"whether {application} is there is not known from here")
    path = Path(unquote(rest.removeprefix("//")) if scheme else application)
    if not path.is_file():
        return Trial(f"there is no {application}", 'correct "application"')
    if path.suffix == ".jar" and main_class is not None:
        for complaint in complaints_about(path, main_class, ""):
            return Trial(complaint.message, 'correct "class"')
    return Trial()
