"""What can be known of a change without any worker: code, Python, types, state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stateshift.errors import Incompatible, PlanError
from stateshift.live import code, state
from stateshift.live.folder import Folder
from stateshift.live.protocol.chains import Declaration, Link, Links, transforms
from stateshift.live.rows import check_returned, empty_input, from_base64, run_on_no_rows
from stateshift.live.standing import ALIVE_SECONDS, ChangeRequest, GroupState
from stateshift.live.state import function_of


def check(folder: Folder, now: GroupState, asked: ChangeRequest) -> frozenset[str]:
    """Refuse what cannot be changed as asked, before anybody is told; return the chains whose types
    are known to fit.
    """
    shipped = {package.digest: package.content for package in asked.packages}
    typed = set()
    for name, new in asked.chains.items():
        declaration = now.declaration(name)
        _check_environment(declaration, asked.packages)
        functions = _functions(folder, declaration, new.links, shipped)
        if _check_types(folder, declaration, functions, asked.unattended):
            typed.add(name)
        if new.state is not None:
            _check_state(folder, now, declaration, new.state, shipped)
    _check_attended(now, asked)
    return frozenset(typed)


def _check_environment(declaration: Declaration, packages: Sequence[code.Package]) -> None:
    here = (code.python_version(), code.pyarrow_version())
    there = (declaration.python, declaration.pyarrow)
    for package in packages:
        code.check_versions(package.name, here, there, f"the job of {declaration.name}")


def _functions(
    folder: Folder, declaration: Declaration, links: Links, shipped: Mapping[str, bytes]
) -> tuple[code.Function, ...]:
    """Return a chain's functions as they will run: loaded here, from the bytes that are shipped."""

    def load(link: Link) -> code.Function:
        digest = link.code if link.own is None else _own_code(declaration, link.own)
        content = shipped[digest] if digest in shipped else folder.code(digest)
        return code.unpack(content, digest)

    return tuple(function_of(link, load) for link in links)


def _own_code(declaration: Declaration, number: int) -> str:
    if number >= len(declaration.codes):
        raise PlanError(
            f"{declaration.name} has no function {number} of its own any more",
            hint="the job was started with fewer functions: revert to a later version",
        )
    return declaration.codes[number]


def _check_types(
    folder: Folder,
    declaration: Declaration,
    functions: Sequence[code.Function],
    unattended: bool,
) -> bool:
    """Run the chain on no rows of what comes in, and hold what comes out against what is promised;
    return whether that could be done.
    """
    if not declaration.output:  # of foreachBatch: what its functions return is theirs alone
        return False
    content = folder.input_of(declaration.name)
    if content is None:
        if unattended:
            return False
        raise PlanError(
            f"no worker of {declaration.name} has had rows yet: what comes in is not known",
            hint="wait until its job has run a batch, or add --unattended: types are not checked",
        )
    rows = run_on_no_rows(declaration.name, functions, empty_input(content))
    output = from_base64(declaration.output)
    check_returned(declaration.name, rows, output, declaration.stamp)
    return True


def _check_state(
    folder: Folder,
    now: GroupState,
    declaration: Declaration,
    link: Link,
    shipped: Mapping[str, bytes],
) -> None:
    """Transform the states that there are as the change will, and keep nothing of it."""
    name = declaration.name
    if declaration.output:
        raise PlanError(
            f"{name} keeps no state", hint="leave --state out: only a chain of foreachBatch does"
        )
    for query in sorted(now.queries(name)):
        kept = state.newest(folder, query, name)
        if kept is None:
            continue
        links = (*transforms(now.changes, name, kept.version, now.version), link)
        functions = _functions(folder, declaration, links, shipped)
        try:
            slots = state.transform_slots(functions, kept.slots)
        except Exception as error:
            raise Incompatible(
                f"{name}: {link.name} cannot transform the state of query {query}: "
                f"{type(error).__name__}: {error}",
                hint="it is called with the slot's name and the state, and returns the state",
            ) from error
        state.encode(name, replace(kept, slots=slots))


def _check_attended(now: GroupState, asked: ChangeRequest) -> None:
    """Refuse targets that nobody runs: nobody could acknowledge."""
    for name in asked.chains:
        if not now.queries(name) and not asked.unattended:
            raise PlanError(
                f"no query with {name} has begun a batch in the last {ALIVE_SECONDS / 60:g} "
                "minutes: nobody can acknowledge its change",
                hint="start its job, or add --unattended to decide without anybody's word",
            )
