"""A chain: functions that a job runs, and that can change while it runs.

    score = live.chain("score", "s3://live/orders", "id long, score double", add_score)
    orders.mapInArrow(score, "id long, score double")

A job hands a chain to mapInArrow (its functions take and return an Arrow RecordBatch), to
mapInPandas (DataFrames of pandas) or to foreachBatch (DataFrames of Spark; the last function
writes). Which functions run is read from the group's folder: once a batch by its seal, and, for
changes that may overtake data, before each Arrow batch (`task`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote

from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.live import code, signing
from stateshift.live.folder import Folder
from stateshift.live.member import Group
from stateshift.live.protocol.chains import Declaration
from stateshift.live.rows import Schema, arrow_schema, from_base64
from stateshift.live.state import Stateful
from stateshift.live.task import Chain
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently

NAME_BYTES_MAX = 100  # it is a part of files' names, beside a query's


def group(location: str, key: str | None = None, owners: Sequence[str] = ()) -> Group:
    """Return the group at a location; the key is read here, where the job is started."""
    if key is not None and "BEGIN PUBLIC KEY" not in key:
        try:
            with open(key, encoding="utf-8") as file:
                key = file.read()
        except (OSError, UnicodeDecodeError, ValueError) as error:
            complaint = Complaint("key", f"{key} cannot be read: {error}")
            raise SpecError((complaint,), hint="name a public key of PEM") from None
    if key is not None:
        signing.check_key(key)
    return Group(locations.normal(location, os.getcwd()), key, tuple(owners))


def chain(
    name: str,
    group_of: Group | str,
    schema: Schema = None,
    *functions: code.Function,
    stamp: str | None = None,
    follow: str | None = None,
) -> Chain:
    """Return a chain of functions that can change while the job runs, declared in its group.

    Args:
        name: by which commands name it; one chain of a name in a group.
        group_of: the group, or its location.
        schema: what the chain returns, as DDL, as Spark's or as Arrow's; None for foreachBatch.
        functions: what the chain begins with; none returns the rows as they are.
        stamp: the column into which it writes each row's version, of type long.
        follow: the column from which it takes it: the one that a chain upstream has stamped.

    Raises:
        PlanError: the group cannot be used, or has another chain of this name.
    """
    if not name or "/" in name or len(quote(name)) > NAME_BYTES_MAX:
        raise SpecError((Complaint("name", f"{name!r} is no name of a chain", name),))
    if schema is not None and any(isinstance(function, Stateful) for function in functions):
        complaint = Complaint("functions", f"{name}: only a chain of foreachBatch keeps a state")
        raise SpecError((complaint,), hint="leave out the schema, and hand it to foreachBatch")
    if isinstance(group_of, str):
        group_of = group(group_of)
    made = Chain(name, group_of, arrow_schema(schema), tuple(functions), stamp, follow)
    declare(made, Folder(open_patiently(group_of.location)))
    return made


def declare(chain: Chain, folder: Folder) -> None:
    """Write down a chain, for those who change it; refuse another one of its name."""
    folder.ensure()
    packages = [code.package(function) for function in chain.own]
    for package in packages:
        folder.write_code(package.digest, package.content)
    declaration = chain.declaration(tuple(package.digest for package in packages))
    before = folder.declaration(chain.name)
    if before is not None:
        _refuse_another(before, declaration, folder)
    folder.declare(declaration)


def _refuse_another(before: Declaration, now: Declaration, folder: Folder) -> None:
    """Refuse a chain of another's name; first functions may differ until a live change."""
    for what in ("output", "stamp", "follow"):
        old, new = getattr(before, what), getattr(now, what)
        if what == "output":  # one schema may be written in two ways
            old, new = (from_base64(text) if text else None for text in (old, new))
        if old != new:
            raise PlanError(
                f"{folder.location} has a chain {now.name} already, with another "
                f"{what.replace('output', 'schema')}",
                hint="give one of them another name, or the job another group",
            )
    is_changed = any(now.name in known.change.chains for known in folder.changes())
    if len(before.functions) != len(now.functions) and is_changed:
        raise PlanError(
            f"{now.name} had {len(before.functions)} functions when it was changed live, the job "
            f"now brings {len(now.functions)}",
            hint="give the chain another name: what was changed live does not fit any more",
        )
