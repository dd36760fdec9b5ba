"""What an executor does with an order: it opens the world it needs, does what it was asked for, and
answers.

An executor sees storages, by their locations and with its own machine's credentials, transforms and
entries by their names; it never sees a cluster or a journal. What goes wrong is part of the answer:
an exception that leaves here is a bug, or the end of the process.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn

from stateshift import plain
from stateshift.engines.registry import Entries, Transforms
from stateshift.engines.spark.check import image as deep
from stateshift.errors import ClusterError, StateshiftError
from stateshift.fleet import comparing
from stateshift.fleet.orders import decode_order, decode_step, encode_answer, encode_error
from stateshift.step.evidence import Evidence
from stateshift.step.images import Side, fold_entries
from stateshift.storage import locations
from stateshift.storage.opening import SystemClock, open_patiently
from stateshift.storage.protocol import Storage
from stateshift.storage.temporaries import apart
from stateshift.storage.wrappers import Pace, Throttled
from stateshift.survey import Image, Survey
from stateshift.world import Listings, World

Order = Mapping[str, Any]
WorldOf = Callable[[Order], World]


def carry_out(text: str, world_of: WorldOf | None = None) -> str:
    """The answer to an order. Its writes are `apart` from those of every other attempt: an executor
    that was given up may still be at work.
    """
    host = socket.gethostname()
    try:
        order = decode_order(text)
        with apart(order["token"]):
            return encode_answer(
                host, done=_ASKED[order["ask"]](order, (world_of or open_world)(order))
            )
    except StateshiftError as error:
        return encode_answer(host, failed=encode_error(error))
    except ModuleNotFoundError as error:
        return encode_answer(host, missing=(error.name or str(error)).partition(".")[0])
    except Exception as error:
        return encode_answer(host, broke=_broke(error))


def open_world(order: Order) -> World:
    """What a step may touch on an executor."""
    clock, opened = SystemClock(), dict[str, Storage]()
    bytes_per_second, operations_per_second = order["rates"]
    throttled = bytes_per_second or operations_per_second
    pace = Pace(clock, bytes_per_second, operations_per_second) if throttled else None

    def storage(location: str) -> Storage:
        if location not in opened:
            found = open_patiently(location)
            opened[location] = found if pace is None else Throttled(found, pace)
        return opened[location]

    return World(
        storage=storage,
        cluster=_no_cluster,
        transforms=Transforms(),
        entries=Entries(),
        clock=clock,
        run=order["run"],
        parallel=1,
        pace=pace,
        found=_found(order),
    )


def _found(order: Order) -> Listings | None:
    """What the driver knows of the target. This world lives for one step, which is not worth a
    look of its own.
    """
    there = order.get("there") if order["ask"] == "run" else None
    return Listings({order["step"]["target"]: there}) if there is not None else None


def _no_cluster(name: str) -> NoReturn:
    raise AssertionError(f"steps that touch a cluster ({name}) are run by the driver")


def _run(order: Order, world: World) -> Any:
    return decode_step(order["step"]).run(world)


def _holds(order: Order, world: World) -> Any:
    return decode_step(order["step"]).holds(world, Evidence.from_plain(order["evidence"]))


def _sum(order: Order, world: World) -> Any:
    """What the entries of some shards come to."""
    return fold_entries(plain.from_plain(Side, order["side"]), order["engine"], world)


def _deep(order: Order, world: World) -> Any:
    """What is wrong with a portion of an image, beyond what its survey has said."""
    survey: Survey = plain.from_plain(Survey, order["survey"])
    image: Image = plain.from_plain(Image, order["image"])
    return list(deep.findings_of(world.storage(survey.location), survey, image))


def _muster(order: Order, world: World) -> Any:
    """Whether everything is here that orders will need: packages, the adapters of locations, and
    the disks that are taken for everybody's.
    """
    for name in order["modules"]:
        import_module(name)
    for location in order["locations"]:
        world.storage(location)
    for location in order["there"]:
        path = locations.local_path(location)
        if path is not None and not os.path.isdir(path):
            raise ClusterError(
                f"executor {socket.gethostname()} does not see {location}",
                cluster="fleet",
                hint="each executor must see the same directory under the same path; else use a "
                "storage that all can "
                "reach, or leave out --fleet",
            )
    return {"pid": os.getpid()}


def _broke(error: Exception) -> dict[str, Any]:
    """An error that none of us foresaw. One of the machine's own (a full disk) is raised again
    as that.
    """
    known = isinstance(error, OSError) and error.errno is not None
    return {
        "message": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
        "os_error": [error.errno, error.strerror, error.filename]
        if known and isinstance(error, OSError)
        else None,
    }


_ASKED: Mapping[str, Callable[[Order, World], Any]] = {
    "run": _run,
    "holds": _holds,
    "sum": _sum,
    "deep": _deep,
    "fold": comparing.fold_here,
    "pick": comparing.pick_here,
    "muster": _muster,
}
