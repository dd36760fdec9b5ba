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

from stateshift.errors import PlanError
from stateshift.live import carrying, checking, code, proposing, scheduling
from stateshift.live.carrying import Carried, Patience
from stateshift.live.folder import Folder
from stateshift.live.member import decided_here, process_name
from stateshift.live.protocol import chains
from stateshift.live.protocol.chains import Known, Link, Links, NewChain, OnError, Version
from stateshift.live.scheduling import Choice, Scheduler, Target
from stateshift.live.standing import Asked, Standing, read_standing
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
        at: the number of the function in the chain that it is about.
        where: a function is introduced before, after or around that one.
        to: the version to revert to; without it, what was before the chain's last change.
        state: what transforms the chain's state, called with slot and state.
    """

    chain: str
    act: Act
    function: code.Function | str | None = None
    at: int | None = None
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
        check_only: check, and tell nobody.
    """

    scheduler: Scheduler | None = None
    dataflow: Dataflow | None = None
    on_error: OnError = "fail"
    timeout_seconds: float = 60.0
    wait_seconds: float = 60.0
    key: str | None = None
    unattended: bool = False
    check_only: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """A change that could be made: nothing stands against it, and nobody knows of it."""

    folder: Folder
    before: Standing
    asked: Asked
    choice: Choice
    # the chains whose types were checked, by running them on no rows
    typed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that was checked, and how far it has come; None if it was checked only."""

    checked: Checked
    carried: Carried | None


def change(
    location: str,
    edits: Sequence[Edit],
    manner: Manner,
    progress: Callable[[Carried], None] = lambda carried: None,
) -> Changed:
    """Change chains of a group together, or raise what stands against it."""
    checked = check(location, edits, manner)
    if manner.check_only:
        return Changed(checked, None)
    return Changed(checked, carry(checked, manner.wait_seconds, progress))


def check(location: str, edits: Sequence[Edit], manner: Manner) -> Checked:
    """Return a change that could be made, or raise what stands against it. Nobody is told."""
    folder = opened(location)
    now = read_standing(folder)
    _refuse_doubled(edits)
    shipped = _Shipped()
    links = {edit.chain: _links_after(edit, now, shipped) for edit in edits}
    choice = _choice(now, edits, manner)
    asked = Asked(
        act=edits[0].act,
        chains={edit.chain: _new(edit, links[edit.chain], choice, shipped) for edit in edits},
        scheduler=choice.scheduler,
        packages=tuple(shipped.packages),
        on_error=manner.on_error,
        timeout_seconds=manner.timeout_seconds,
        key=manner.key,
        unattended=manner.unattended,
    )
    _refuse_torn_reversal(asked)
    typed = checking.check(folder, now, asked)
    return Checked(folder, now, asked, choice, typed)


def carry(
    checked: Checked,
    wait_seconds: float = 60.0,
    progress: Callable[[Carried], None] = lambda carried: None,
) -> Carried:
    """Propose a change that was checked, and follow it to its end, or as long as somebody waits."""
    folder, now, asked = checked.folder, checked.before, checked.asked
    proposed = proposing.propose(folder, now, asked)
    patience = Patience(wait_seconds, asked.unattended)
    return carrying.carry(folder, now, proposed, patience, progress)


def withdraw(checked: Checked, reason: str) -> Known | None:
    """Abort what this process has proposed, unless it is decided; return what became of it. None:
    nothing was proposed.
    """
    folder = checked.folder
    known = folder.change(len(checked.before.changes) + 1)
    if known is None or known.change.by != process_name():
        return None
    held = folder.decide(known.number, decided_here("aborted", reason))
    return replace(known, decided=held)


def abort(location: str) -> Known:
    """Abort the change that is under way; return it."""
    folder = opened(location)
    return proposing.abort(folder, read_standing(folder))


def opened(location: str) -> Folder:
    """Return the folder of a group."""
    return Folder(open_patiently(location))


def _refuse_doubled(edits: Sequence[Edit]) -> None:
    names = [edit.chain for edit in edits]
    for name in names:
        if names.count(name) > 1:
            hint = "change it twice, one after the other"
            raise PlanError(f"{name} is named twice in one change", hint=hint)


class _Shipped:
    """The functions that a change ships."""

    def __init__(self) -> None:
        self.packages: list[code.Package] = []

    def link(self, function: code.Function | str) -> Link:
        """Package a function, and return the link to it."""
        package = code.package(function)
        self.packages.append(package)
        return Link(package.digest, package.name)


def _links_after(edit: Edit, now: Standing, shipped: _Shipped) -> Links:
    """Return the chain as an edit makes it."""
    links = now.links(edit.chain)
    match edit.act:
        case "replace":
            return chains.replaced(edit.chain, links, edit.at, _link(edit, shipped))
        case "introduce":
            at = edit.at or 0
            return chains.introduced(edit.chain, links, edit.where, at, _link(edit, shipped))
        case "remove":
            return chains.removed(edit.chain, links, edit.at)
        case "revert":
            return _reverted(edit, now)


def _link(edit: Edit, shipped: _Shipped) -> Link:
    assert edit.function is not None, "what is replaced or introduced has a function"
    return shipped.link(edit.function)


def _reverted(edit: Edit, now: Standing) -> Links:
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


def _new(edit: Edit, links: Links, choice: Choice, shipped: _Shipped) -> NewChain:
    state = None if edit.state is None else shipped.link(edit.state)
    return NewChain(links, choice.when[edit.chain], state)


def _choice(now: Standing, edits: Sequence[Edit], manner: Manner) -> Choice:
    targets = [Target(now.declaration(edit.chain), now.queries(edit.chain)) for edit in edits]
    return scheduling.choose(targets, manner.dataflow, manner.scheduler)


def _refuse_torn_reversal(asked: Asked) -> None:
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
