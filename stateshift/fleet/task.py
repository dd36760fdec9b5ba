"""A Spark task: the work of an executor on an order. It opens the world it needs, carries the order
out, and answers.

An executor sees storages, by their locations and with its own machine's credentials, transforms and
entries by their names; it never sees a cluster or a journal. An error is part of the answer: an
exception that leaves here is a bug, or the end of the process.
"""

from __future__ import annotations

import os
import socket
import tempfile
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import NoReturn

from stateshift import plain
from stateshift.engines.registry import Entries, Transforms
from stateshift.engines.spark.check import image as deep
from stateshift.engines.spark.check.snapshots import check_histories
from stateshift.engines.views import ExportedPart, Tallies, Wanted
from stateshift.errors import ClusterError, StateshiftError
from stateshift.fleet import comparing, rewriting
from stateshift.fleet.cutting import parts_here
from stateshift.fleet.orders import (
    Json,
    Order,
    decode_order,
    decode_step,
    encode_answer,
    encode_error,
)
from stateshift.step.claims import refuse_another
from stateshift.step.evidence import Evidence
from stateshift.step.images import Side, fold_entries
from stateshift.storage import locations
from stateshift.storage.opening import SystemClock, open_patiently
from stateshift.storage.protocol import Storage
from stateshift.storage.temporaries import apart
from stateshift.storage.wrappers import Guarded, Pace, Throttled, Unsynced
from stateshift.survey import Image, Survey
from stateshift.world import Listings, World

WorldOf = Callable[[Order], World]


def carry_out(text: str, world_of: WorldOf | None = None) -> str:
    """Carry out an order and return the answer. Its writes are `apart` from those of every other
    attempt: an executor that was given up may still be at work.
    """
    host = socket.gethostname()
    try:
        order = decode_order(text)
        carry = _REQUESTS[order["ask"]]
        with apart(order["token"]):
            world = (world_of or open_world)(order)
            return encode_answer(host, done=carry(order, world))
    except StateshiftError as error:
        return encode_answer(host, failed=encode_error(error))
    except ModuleNotFoundError as error:
        return encode_answer(host, missing=(error.name or str(error)).partition(".")[0])
    except Exception as error:
        os_error = None  # one of the machine's own (a full disk) is raised again as that
        if isinstance(error, OSError) and error.errno is not None:
            os_error = [error.errno, error.strerror, error.filename]
        bug = {
            "message": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
            "os_error": os_error,
            "memory": isinstance(error, MemoryError),
        }
        return encode_answer(host, broke=bug)


def open_world(order: Order, known: dict[str, Storage] | None = None) -> World:
    """Return the world of a step on an executor. Orders that share `known` share storages."""
    clock = SystemClock()
    opened: dict[str, Storage] = {} if known is None else known
    pace = Pace(clock, *order["rates"]) if any(order["rates"]) else None
    unsynced, claims = order.get("unsynced", ()), order.get("claims", {})

    def storage(location: str) -> Storage:
        if location not in opened:
            opened[location] = open_patiently(location)
        if location in unsynced:
            return Unsynced(opened[location], pace or Pace(clock))
        if location in claims:
            place, generation = claims[location]
            if place not in opened:
                opened[place] = open_patiently(place)
            refuse = partial(refuse_another, opened[place], generation)
            return Guarded(opened[location], pace or Pace(clock), refuse, clock)
        return opened[location] if pace is None else Throttled(opened[location], pace)

    def cluster(name: str) -> NoReturn:
        raise AssertionError(f"steps that touch a cluster ({name}) are run by the driver")

    return World(
        storage=storage,
        cluster=cluster,
        transforms=Transforms(),
        entries=Entries(),
        clock=clock,
        run=order["run"],
        parallel=1,
        pace=pace,
        found=listings_of(order),
    )


def listings_of(order: Order) -> Listings | None:
    """Return the driver's listing of the target: one step is not worth a look of its own."""
    if order["ask"] != "run" or order.get("there") is None:
        return None
    return Listings({order["step"]["target"]: order["there"]})


def _deep(order: Order, world: World) -> Json:
    """Return the findings on a portion beyond its survey's; and its tallies, if asked for."""
    survey: Survey = plain.from_plain(Survey, order["survey"])
    image: Image = plain.from_plain(Image, order["image"])
    tallies: Tallies | None = {} if order["tally"] else None
    storage = world.storage(survey.location)
    findings = list(deep.findings_of(storage, survey, image, tallies, order["reads"]))
    return {"findings": findings, "tallies": list((tallies or {}).items())}


def _histories(order: Order, world: World) -> Json:
    """Return the check of the snapshots of a portion against the changes before them."""
    survey: Survey = plain.from_plain(Survey, order["survey"])
    image: Image = plain.from_plain(Image, order["image"])
    tallies: Tallies = {tuple(place): tuple(tally) for place, tally in order["tallies"]}
    return check_histories(world.storage(survey.location), survey, image, tallies)


def _export(order: Order, world: World) -> Json:
    """Write the entries of a part of an image to a temporary file, whose name is the answer."""
    # Loads Parquet, for which no step should wait.
    from stateshift.engines.spark.entries.store_views import views_of
    from stateshift.engines.spark.views.export import Export
    from stateshift.engines.spark.views.selection import Opened

    survey: Survey = plain.from_plain(Survey, order["survey"])
    storage = world.storage(survey.location)
    views = {image.path: views_of(storage, image) for image in survey.images}
    wanted = plain.from_plain(Wanted, order["wanted"])
    made = Export(Opened(survey.location, storage, survey, views), wanted, order["format"])
    handle, path = tempfile.mkstemp(prefix="stateshift-export-")
    os.close(handle)
    made.save(path)
    return ExportedPart(path, made.entries)


def _check(order: Order, world: World) -> Json:
    """Check that packages, adapters of locations, and the shared disks are here."""
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
                "storage that all can reach, or leave out --fleet",
            )
    return {"pid": os.getpid()}


_REQUESTS: Mapping[str, Callable[[Order, World], Json]] = {
    "run": lambda order, world: decode_step(order["step"]).run(world),
    "holds": lambda order, world: decode_step(order["step"]).holds(
        world, Evidence.from_plain(order["evidence"])
    ),
    "sum": lambda order, world: fold_entries(
        plain.from_plain(Side, order["side"]), order["engine"], world
    ),
    "parts": parts_here,
    "bounds": rewriting.bounds_here,
    "tables": rewriting.tables_here,
    "version": rewriting.version_here,
    "deal": rewriting.deal_here,
    "gather": rewriting.gather_here,
    "deep": _deep,
    "histories": _histories,
    "fold": comparing.fold_here,
    "pick": comparing.pick_here,
    "export": _export,
    "check": _check,
}
