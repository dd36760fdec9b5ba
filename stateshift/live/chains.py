"""A chain: functions that a job runs, and that can change while it runs.

    score = live.chain("score", "s3://live/orders", "id long, score double", add_score)
    orders.mapInArrow(score, "id long, score double")

A chain is what a job hands to mapInArrow (its functions take and return an Arrow RecordBatch), to
mapInPandas (DataFrames of pandas) or to foreachBatch (DataFrames of Spark; the last function
writes). Which functions run is read from the group's folder: once a batch by its seal, and, for
changes that may overtake data, before each Arrow batch.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.live import code, signing
from stateshift.live.folder import Folder
from stateshift.live.member import Member, Trust
from stateshift.live.protocol.chains import Declaration, Links
from stateshift.live.rows import (
    Rows,
    Schema,
    arrow_schema,
    check_returned,
    from_base64,
    in_base64,
    run_on_no_rows,
)
from stateshift.live.state import Stateful
from stateshift.live.task import Task, place, run_batch
from stateshift.storage import locations
from stateshift.storage.opening import open_patiently, open_storage

if TYPE_CHECKING:
    import pyarrow

_PROCESS = uuid.uuid4().hex[:8]
NAME_BYTES_MAX = 100  # it is a part of files' names, beside a query's


@dataclass(frozen=True, slots=True)
class Group:
    """The folder that the workers of some jobs share, and whose changes they take.

    Args:
        location: a directory that all machines see, HDFS, or an object store.
        key: a public key of Ed25519, as text or the name of a file; then only signed changes count.
        owners: who besides the job's own user may own the folder of code.
    """

    location: str
    key: str | None = None
    owners: tuple[str, ...] = ()

    @property
    def trust(self) -> Trust:
        """Whose code the jobs run."""
        return Trust(self.key, self.owners)


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
    made.declare(Folder(open_patiently(group_of.location)))
    return made


@dataclass
class Chain:
    """A chain as its job holds it. It is pickled with the job's tasks, with the functions that it
    begins with.
    """

    name: str
    group: Group
    output: pyarrow.Schema | None
    own: tuple[code.Function, ...]
    stamp: str | None = None
    follow: str | None = None
    made_by: str = field(default=_PROCESS, repr=False)
    first: Links = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.first = self._declaration((), "").first

    def declare(self, folder: Folder) -> None:
        """Write down what the chain is, for those who change it; refuse another one of its name."""
        folder.ensure()
        packages = [code.package(function) for function in self.own]
        for package in packages:
            folder.write_code(package.digest, package.content)
        output = "" if self.output is None else in_base64(self.output)
        declaration = self._declaration(tuple(package.digest for package in packages), output)
        _refuse_another(folder.declaration(self.name), declaration, folder)
        folder.declare(declaration)

    def _declaration(self, codes: tuple[str, ...], output: str) -> Declaration:
        return Declaration(
            name=self.name,
            functions=tuple(code.name_of(function) for function in self.own),
            codes=codes,
            output=output,
            python=code.python_version(),
            pyarrow=code.pyarrow_version(),
            stamp=self.stamp,
            follow=self.follow,
        )

    def __call__(self, rows: Rows, batch_id: int | None = None) -> Rows:
        """Run the chain: over an iterator of batches in a task, or over a DataFrame and the number
        of its batch.
        """
        if batch_id is None:
            return Task(self, _member(self.group), *place(self)).run(rows)
        return run_batch(self, _member(self.group), rows, batch_id)

    # ---------------------------------------------------------------- types

    def try_on_no_rows(self, functions: Sequence[code.Function], rows: Rows) -> None:
        """Refuse functions that do not return what the chain returns, run on no rows."""
        rows = run_on_no_rows(self.name, functions, rows)
        if self.output is not None:
            check_returned(self.name, rows, self.output, self.stamp)


def _refuse_another(before: Declaration | None, now: Declaration, folder: Folder) -> None:
    """Refuse a chain whose name another one has. Its first functions may have changed, as long as
    nobody has changed them live.
    """
    if before is None:
        return
    differs = next((what for what, old, new in _facets(before, now) if old != new), None)
    if differs is not None:
        raise PlanError(
            f"{folder.location} has a chain {now.name} already, with another {differs}",
            hint="give one of them another name, or the job another group",
        )
    is_changed = any(now.name in known.change.chains for known in folder.changes())
    if len(before.functions) != len(now.functions) and is_changed:
        raise PlanError(
            f"{now.name} had {len(before.functions)} functions when it was changed live, the job "
            f"now brings {len(now.functions)}",
            hint="give the chain another name: what was changed live does not fit any more",
        )


def _facets(before: Declaration, now: Declaration) -> Iterator[tuple[str, object, object]]:
    yield "schema", _types(before.output), _types(now.output)
    yield "stamp", before.stamp, now.stamp
    yield "follow", before.follow, now.follow


def _types(output: str) -> pyarrow.Schema | None:
    return from_base64(output) if output else None


# ------------------------------------------------------------------------------------ processes

_members: dict[Group, Member] = {}


def _member(of: Group) -> Member:
    """Return what this process knows of a group."""
    if of not in _members:
        folder = Folder(open_patiently(of.location))
        folder.check()
        code_place = open_storage(f"{of.location.rstrip('/')}/code")
        is_near = locations.scheme(of.location) == "file"
        _members[of] = Member(folder, code_place, of.trust, is_near=is_near)
    return _members[of]
