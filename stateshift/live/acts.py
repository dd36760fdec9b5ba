"""What can be done to the chains of a group: replace, introduce, remove, revert; abort.

    change("s3://live/orders", [Edit("score", "replace", "model_v2:score")], Manner())

It is checked first (`checking`), and nothing is told to anybody unless all of it holds. With
`check_only` that is all. Else code is shipped and the change proposed (`proposing`), acknowledged
and decided (`carrying`); what comes back says how far it came while it was waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stateshift.errors import PlanError, StalePlan
from stateshift.live import carrying, checking, code, proposing, scheduling
from stateshift.live.carrying import ChangeProgress, Patience
from stateshift.live.folder import Folder
from stateshift.live.member import decided_here, process_name
from stateshift.live.protocol import chains
from stateshift.live.protocol.chains import (
    KnownChange,
    Link,
    Links,
    NewChain,
    OnError,
    Version,
    place_of,
)
from stateshift.live.scheduling import Choice, Scheduler, Target
from stateshift.live.standing import ChangeRequest, GroupState, read_group
from stateshift.specification.dataflow.operators import Dataflow
from stateshift.storage.opening import open_patiently

Act = Literal["replace", "introduce", "remove", "revert"]
Where = Literal["before", "after", "around"]


@dataclass(frozen=True, slots=True)
class Edit:
    """What shall become of one chain.

    Args:
        chain: its name.
        act: replace, introduce or remove a function of it, or revert it to what it was.
        function: the new one, itself or as MODULE:NAME.
        at: the number of the function in the chain that it is about, or its name; as the chain is
            before the change.
        where: a function is introduced before, after or around that one.
        to: the version to revert to; without it, what was before the chain's last change.
        state: what transforms the chain's state, called with slot and state.
    """

    chain: str
    act: Act
    function: code.Function | str | None = None
    at: int | str | None = None
    where: Where = "before"
    to: Version | None = None
    state: code.Function | str | None = None


@dataclass(frozen=True, slots=True)
class Manner:
    """How a change is brought in.

    Args:
        scheduler: epoch or fries; by itself fries where the dataflow allows it.
        dataflow: what lies between the chains; operators have their names.
        on_error: what becomes of it if a function of it raises: the batch fails, or it is reverted.
        timeout_seconds: what is not decided by then is aborted.
        wait_seconds: how long to wait until every worker runs it.
        key: the file of a private key that signs it.
        unattended: decide without the word of workers.
        expect: the version that the chains have to be at.
        check_only: check, and tell nobody.
    """

    scheduler: Scheduler | None = None
    dataflow: Dataflow | None = None
    on_error: OnError = "fail"
    timeout_seconds: float = 60.0
    wait_seconds: float = 60.0
    key: str | None = None
    unattended: bool = False
    expect: Version | None = None
    check_only: bool = False


@dataclass(frozen=True, slots=True)
class CheckedChange:
    """A change that could be made: nothing stands against it, and nobody knows of it."""

    folder: Folder
    before: GroupState
    asked: ChangeRequest
    choice: Choice
    # the chains whose types were checked, by running them on no rows
    typed: frozenset[str]


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """A change that was checked, and how far it has come; None if it was checked only."""

    checked: CheckedChange
    carried: ChangeProgress | None


def change(
    location: str,
    edits: Sequence[Edit],
    manner: Manner,
    progress: Callable[[ChangeProgress], None] = lambda carried: None,
) -> ChangeResult:
    """Change chains of a group together, or raise what stands against it."""
    checked = check(location, edits, manner)
    if manner.check_only:
        return ChangeResult(checked, None)
    return ChangeResult(checked, carry(checked, manner.wait_seconds, progress))


def check(location: str, edits: Sequence[Edit], manner: Manner) -> CheckedChange:
    """Return a change that could be made, or raise what stands against it. Nobody is told."""
    folder = open_group(location)
    now = read_group(folder)
    of_chains: dict[str, list[Edit]] = {}
    for edit in edits:
        of_chains.setdefault(edit.chain, []).append(edit)
    if manner.expect is not None:
        for name in of_chains:
            _refuse_unexpected(now, name, manner.expect)
    shipped = _Shipped()
    links = {name: _links_after(now, name, of, shipped) for name, of in of_chains.items()}
    choice = _choice(now, tuple(of_chains), manner)
    asked = ChangeRequest(
        act=edits[0].act,
        chains={
            name: NewChain(links[name], choice.when[name], _state(of, shipped))
            for name, of in of_chains.items()
        },
        scheduler=choice.scheduler,
        packages=tuple(shipped.packages),
        on_error=manner.on_error,
        timeout_seconds=manner.timeout_seconds,
        key=manner.key,
        unattended=manner.unattended,
    )
    _refuse_torn_reversal(asked)
    typed = checking.check(folder, now, asked)
    return CheckedChange(folder, now, asked, choice, typed)


def carry(
    checked: CheckedChange,
    wait_seconds: float = 60.0,
    progress: Callable[[ChangeProgress], None] = lambda carried: None,
) -> ChangeProgress:
    """Propose a change that was checked, and follow it to its end, or as long as somebody waits."""
    folder, now, asked = checked.folder, checked.before, checked.asked
    proposed = proposing.propose(folder, now, asked)
    patience = Patience(wait_seconds, asked.unattended)
    return carrying.carry(folder, now, proposed, patience, progress)


def withdraw(checked: CheckedChange, reason: str) -> KnownChange | None:
    """Abort what this process has proposed, unless it is decided; return what became of it. None:
    nothing was proposed.
    """
    folder = checked.folder
    known = folder.change(len(checked.before.changes) + 1)
    if known is None or known.change.by != process_name():
        return None
    held = folder.decide(known.number, decided_here("aborted", reason))
    return replace(known, decided=held)


def abort(location: str) -> KnownChange:
    """Abort the change that is under way; return it."""
    folder = open_group(location)
    return proposing.abort(folder, read_group(folder))


def open_group(location: str) -> Folder:
    """Return the folder of a group."""
    return Folder(open_patiently(location))


def _refuse_unexpected(now: GroupState, chain: str, expected: Version) -> None:
    """Refuse a chain that is at another version: somebody has changed it since, or its change has
    taken itself back.
    """
    links = now.links(chain)
    changes = [known for known in now.changes if known.applied and chain in known.change.chains]
    last = [known for known in changes if known.number <= expected]
    is_undone = bool(last) and not last[-1].holds
    version = now.newest_of(chain)
    if version > expected or expected > now.version or is_undone:
        functions = ", ".join(f"{number} {link}" for number, link in enumerate(links)) or "none"
        raise StalePlan(
            f"{chain} is at version {version}, not {expected}; its functions are now: {functions}",
            hint=f"name the function by what is there now, and add --expect {version}",
        )


class _Shipped:
    """The functions that a change ships."""

    def __init__(self) -> None:
        self.packages: list[code.Package] = []

    def link(self, function: code.Function | str) -> Link:
        """Package a function, and return the link to it."""
        package = code.package(function)
        self.packages.append(package)
        return Link(package.digest, package.name)


def _links_after(now: GroupState, chain: str, edits: Sequence[Edit], shipped: _Shipped) -> Links:
    """Return a chain as edits make it. Each is about another function of the chain as it is now:
    the last function is edited first, so that no place shifts.
    """
    links = now.links(chain)
    if len(edits) == 1 and edits[0].act == "revert":
        return _reverted(edits[0], now)
    placed: dict[int, Edit] = {}
    for edit in edits:
        at = 0 if edit.act == "introduce" and edit.at is None else edit.at
        is_first = edit.act == "introduce" and edit.where == "before" and at == len(links) == 0
        place = 0 if is_first else place_of(chain, links, at)
        if place in placed or edit.act == "revert":
            hint = (
                "say of each function another place: --at 0 --at 2; or change one after the other"
            )
            raise PlanError(f"{chain} is named twice in one change", hint=hint)
        placed[place] = edit
    linked = {place: _link(edit, shipped) for place, edit in placed.items()}
    for place in sorted(placed, reverse=True):
        link = linked[place]
        if link is None:
            links = chains.remove_link(chain, links, place)
        elif placed[place].act == "replace":
            links = chains.replace_link(chain, links, place, link)
        else:
            links = chains.introduce_link(chain, links, placed[place].where, place, link)
    return links


def _link(edit: Edit, shipped: _Shipped) -> Link | None:
    """Return the link to an edit's function; None where one is removed."""
    if edit.act == "remove":
        return None
    assert edit.function is not None, "what is replaced or introduced has a function"
    return shipped.link(edit.function)


def _reverted(edit: Edit, now: GroupState) -> Links:
    """Return a chain as it was at a version, or before its last change."""
    if edit.to is not None:
        if not 0 <= edit.to <= now.version:
            hint = f"versions are 0 to {now.version}: stateshift live history GROUP {edit.chain}"
            raise PlanError(f"there is no version {edit.to}", hint=hint)
        return now.links(edit.chain, edit.to)
    newest = now.newest_of(edit.chain)
    if newest == 0:
        now.declaration(edit.chain)
        raise PlanError(f"{edit.chain} was never changed", hint="there is nothing to revert")
    return now.links(edit.chain, newest - 1)


def _state(edits: Sequence[Edit], shipped: _Shipped) -> Link | None:
    """Return what transforms the state of a chain."""
    transforms = [edit.state for edit in edits if edit.state is not None]
    if len(transforms) > 1:
        hint = "one function is called with the name of each slot"
        raise PlanError(f"the state of {edits[0].chain} is transformed twice", hint=hint)
    return shipped.link(transforms[0]) if transforms else None


def _choice(now: GroupState, names: Sequence[str], manner: Manner) -> Choice:
    targets = [Target(now.declaration(name), now.queries(name)) for name in names]
    return scheduling.choose(targets, manner.dataflow, manner.scheduler)


def _refuse_torn_reversal(asked: ChangeRequest) -> None:
    """Refuse that a change of several queries takes itself back: what has passed the first of them
    would meet the old function in the next. Nor can one that transforms a state.
    """
    if asked.on_error != "revert":
        return
    if any(new.state is not None for new in asked.chains.values()):
        raise PlanError(
            "a change that transforms a state cannot take itself back: nothing turns that back",
            hint="leave --on-error out, and revert it yourself with a --state that turns it back",
        )
    if any(new.when == "column" for new in asked.chains.values()):
        raise PlanError(
            "a change of several jobs cannot take itself back at an error",
            hint="leave --on-error out, and revert it yourself: stateshift live revert",
        )
