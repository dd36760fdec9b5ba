"""What a driver on a worker was started with, by its launch command, which its worker shows:

    Launch Command: "java" "-cp" … "-Dspark.k=v" … "org.apache.spark.deploy.worker.DriverWrapper"
    "spark://Worker@…" "/work/driver-…/app.jar" "org.shop.Orders" "a" "b"

Spark hides the values of settings that look like credentials: such a driver cannot be started again
from here. The application's own place is among `spark.jars`, where a worker's copy has its name.
"""

from __future__ import annotations

import shlex
from typing import Final

from stateshift.clusters.protocol import Origin

_WRAPPER: Final = "org.apache.spark.deploy.worker.DriverWrapper"
_HIDDEN: Final = "(redacted)"
# What a submission sets by itself, or what belongs to the one driver.
_OWN: Final = (
    "spark.app.name",
    "spark.app.submitTime",
    "spark.driver.port",
    "spark.master",
    "spark.submit.",
    "spark.stateshift.",
)


def launched_with(command: str | None) -> Origin:
    """Return what a driver was started with."""
    if command is None:
        return Origin(why="no worker shows how its driver was launched")
    try:
        words = shlex.split(command.partition(":")[2])
    except ValueError:
        return Origin(why="its launch command cannot be read")
    if _WRAPPER not in words or _HIDDEN in command:
        return Origin(why="its launch command does not show all that it was started with")
    at = words.index(_WRAPPER)
    if at + 3 >= len(words):
        return Origin(why="its launch command is cut short")
    _, copy, main, *arguments = words[at + 1 :]
    conf = dict(word[2:].partition("=")[::2] for word in words[:at] if word.startswith("-Dspark."))
    name = copy.rpartition("/")[2]
    jars = conf.get("spark.jars", "").split(",")
    places = [jar for jar in jars if jar.rpartition("/")[2] == name]
    if not places:
        return Origin(why=f"its launch command does not say where {name} came from")
    kept = {key: value for key, value in conf.items() if not key.startswith(_OWN)}
    kept.pop("spark.jars")
    others = [jar for jar in jars if jar not in places]
    if others:
        kept["spark.jars"] = ",".join(others)
    return Origin({"application": places[0], "class": main, "arguments": arguments, "conf": kept})
