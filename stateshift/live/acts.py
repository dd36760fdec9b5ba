"""Changes of a group's chains: replace, introduce, remove, revert; abort.

    change("s3://live/orders", [Edit("score", "replace", "model_v2:score")], Manner())

A change is checked first, without any worker: its code, Python, types, state. Nobody is told
unless all of it holds. With `check_only` that is all. Else code is shipped and the change proposed,
acknowledged and decided (`proposals`); the result says how far it came while it was waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from stateshift.errors import Incompatible, PlanError, StalePlan
from stateshift.live import code, proposals, scheduling, state
from stateshift.live.folder import Folder
from stateshift.live.member import decided_here, process_name
from stateshift.live.proposals import (
    ALIVE_SECONDS,
    ChangeProgress,
    ChangeRequest,
    GroupState,
    Patience,
    read_group,
)
from stateshift.live.protocol import chains
from stateshift.live.protocol.chains import (
    Declaration,
    KnownChange,
    Link,
    Links,
    NewChain,
    OnError,
    Version,
    place_of,
    transforms,
)
from stateshift.live.rows import check_returned, empty_input, from_base64, run_on_no_rows
from stateshift.live.scheduling import Choice, Scheduler, Target
from stateshift.live.state import function_of
from stateshift.specification.dataflow.operators import Dataflow
from stateshift.storage.locations import redact
from stateshift.storage.opening import open_patiently

Act = Literal["replace", "introduce", "remove", "revert"]
Where = Literal["before", "after", "around"]


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one chain.

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
    """The way in which a change is brought in.

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
class ChainChange:
    """What a change makes of one chain."""

    schema_name: ClassVar = "LiveChainChange"
    chain: Annotated[str, "its name"]
    before: Annotated[tuple[str, ...], "its functions before, in their order"]
    after: Annotated[tuple[str, ...], "its functions with the change"]
    when: Annotated[
        Literal["batch", "message", "column"],
        "where it begins to hold: at a batch, at once, or for the rows that say so",
    ]
    types_checked: Annotated[bool, "whether its functions were run on no rows, and fit"]


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """A change that was checked; `carried` says how far it has come, unless it was checked only."""

    checked: CheckedChange
    carried: ChangeProgress | None = None

    @property
    def location(self) -> str:
        """The location of the group's folder, without credentials."""
        return redact(self.checked.folder.location)

    @property
    def number(self) -> Version | None:
        """Its number, which is the version of its chains; None if it was checked only."""
        return None if self.carried is None else self.carried.change.number

    @property
    def state(self) -> Literal["checked", "finished", "applied", "aborted", "reverted"]:
        """How far it came: checked only, aborted, applied, run by every worker, or taken back by
        its first error.
        """
        if self.carried is None or self.carried.state == "proposed":
            return "checked"
        if self.carried.state != "aborted" and self.carried.reverted is not None:
            return "reverted"
        return self.carried.state

    @property
    def reason(self) -> str | None:
        """Why it was aborted, or taken back; None where it holds."""
        if self.carried is not None and self.carried.reverted is not None:
            return self.carried.reverted.error
        decided = None if self.carried is None else self.carried.decided
        return decided.reason if decided is not None and self.state == "aborted" else None

    @property
    def chains(self) -> tuple[ChainChange, ...]:
        """The change of each chain."""
        before = self.checked.before
        return tuple(
            ChainChange(
                chain=name,
                before=chains.names_of(before.links(name)),
                after=chains.names_of(new.links),
                when=new.when,
                types_checked=name in self.checked.typed,
            )
            for name, new in self.checked.asked.chains.items()
        )

    @property
    def delay_seconds(self) -> float | None:
        """The seconds from the proposal until the last worker ran it; None before that."""
        if self.carried is None or self.state != "finished":
            return None
        return self.carried.last_seconds

    @property
    def workers(self) -> int:
        """The number of workers that have to acknowledge it."""
        return len(self.checked.before.living)

    @property
    def queries(self) -> int:
        """How many queries these workers are of."""
        return len({said.query for said in self.checked.before.living})

    @property
    def versions(self) -> Mapping[str, Version]:
        """The version of each of its chains, as things are now."""
        names = self.checked.asked.chains
        if self.state in ("finished", "applied") and self.number is not None:
            return dict.fromkeys(names, self.number)
        return {name: self.checked.before.newest_of(name) for name in names}


def change(
    location: str,
    edits: Sequence[Edit],
    manner: Manner,
    progress: Callable[[ChangeProgress], None] = lambda carried: None,
) -> ChangeResult:
    """Change chains of a group together, or raise what stands against it."""
    checked = check(location, edits, manner)
    if manner.check_only:
        return ChangeResult(checked)
    return ChangeResult(checked, carry(checked, manner.wait_seconds, progress))


def check(location: str, edits: Sequence[Edit], manner: Manner) -> CheckedChange:
    """Return a change that could be made, or raise what stands against it. Nobody is told."""
    folder = open_group(location)
    now = read_group(folder)
    by_chain: dict[str, list[Edit]] = {}
    for edit in edits:
        by_chain.setdefault(edit.chain, []).append(edit)
    if manner.expect is not None:
        for name in by_chain:
            _refuse_unexpected(now, name, manner.expect)
    packages: list[code.Package] = []  # of the functions that the change ships
    links = {name: _links_after(now, name, edits, packages) for name, edits in by_chain.items()}
    targets = [Target(now.declaration(name), now.queries(name)) for name in by_chain]
    choice = scheduling.choose(targets, manner.dataflow, manner.scheduler)
    asked = ChangeRequest(
        act=edits[0].act,
        chains={
            name: NewChain(links[name], choice.when[name], _state_transform(edits, packages))
            for name, edits in by_chain.items()
        },
        scheduler=choice.scheduler,
        packages=tuple(packages),
        on_error=manner.on_error,
        timeout_seconds=manner.timeout_seconds,
        key=manner.key,
        unattended=manner.unattended,
    )
    if asked.on_error == "revert":
        # Refuse that a change of several queries takes itself back: what has passed the first of
        # them would meet the old function in the next. Nor can one that transforms a state.
        if any(new.state is not None for new in asked.chains.values()):
            raise PlanError(
                "a change that transforms a state cannot take itself back: nothing turns that back",
                hint="leave --on-error out, and revert it yourself with a --state that turns it "
                "back",
            )
        if any(new.when == "column" for new in asked.chains.values()):
            raise PlanError(
                "a change of several jobs cannot take itself back at an error",
                hint="leave --on-error out, and revert it yourself: stateshift live revert",
            )
    typed = check_request(folder, now, asked)
    return CheckedChange(folder, now, asked, choice, typed)


def carry(
    checked: CheckedChange,
    wait_seconds: float = 60.0,
    progress: Callable[[ChangeProgress], None] = lambda carried: None,
) -> ChangeProgress:
    """Propose a change that was checked, and follow it to its end, or as long as somebody waits."""
    folder, now, asked = checked.folder, checked.before, checked.asked
    proposed = proposals.propose(folder, now, asked)
    patience = Patience(wait_seconds, asked.unattended)
    return proposals.follow(folder, now, proposed, patience, progress)


def withdraw(checked: CheckedChange, reason: str) -> KnownChange | None:
    """Abort this process's proposal unless it is decided; return it, or None if there is none."""
    folder = checked.folder
    known = folder.change(len(checked.before.changes) + 1)
    if known is None or known.change.by != process_name():
        return None
    held = folder.decide(known.number, decided_here("aborted", reason))
    return replace(known, decided=held)


def abort(location: str) -> KnownChange:
    """Abort the change that is under way; return it."""
    folder = open_group(location)
    return proposals.abort(folder, read_group(folder))


def open_group(location: str) -> Folder:
    """Return the folder of a group."""
    return Folder(open_patiently(location))


def _refuse_unexpected(now: GroupState, chain: str, expected: Version) -> None:
    """Refuse a chain at another version: changed since, or its change took itself back."""
    links = now.links(chain)
    is_undone = False
    for known in now.changes[:expected]:
        if known.applied and chain in known.change.chains:
            is_undone = not known.holds
    version = now.newest_of(chain)
    if version > expected or expected > now.version or is_undone:
        functions = ", ".join(f"{number} {link}" for number, link in enumerate(links)) or "none"
        raise StalePlan(
            f"{chain} is at version {version}, not {expected}; its functions are now: {functions}",
            hint=f"name the function by what is there now, and add --expect {version}",
        )


def _ship(function: code.Function | str, packages: list[code.Package]) -> Link:
    """Package a function, and return the link to it."""
    package = code.package(function)
    packages.append(package)
    return Link(package.digest, package.name)


def _links_after(
    now: GroupState, chain: str, edits: Sequence[Edit], packages: list[code.Package]
) -> Links:
    """Return a chain as edits make it. Each is about another function of the chain as it is now:
    the last function is edited first, so that no place shifts.
    """
    links = now.links(chain)
    if len(edits) == 1 and edits[0].act == "revert":
        return _links_before(edits[0], now)
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
    shipped_links: dict[int, Link] = {}
    for place, edit in placed.items():
        if edit.act != "remove":
            assert edit.function is not None, "an edit that replaces or introduces has a function"
            shipped_links[place] = _ship(edit.function, packages)
    for place in sorted(placed, reverse=True):
        edit = placed[place]
        if edit.act == "remove":
            links = chains.remove_link(chain, links, place)
        elif edit.act == "replace":
            links = chains.replace_link(chain, links, place, shipped_links[place])
        else:
            links = chains.introduce_link(chain, links, edit.where, place, shipped_links[place])
    return links


def _links_before(edit: Edit, now: GroupState) -> Links:
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


def _state_transform(edits: Sequence[Edit], packages: list[code.Package]) -> Link | None:
    """Return the function that transforms the state of a chain."""
    transforms = [edit.state for edit in edits if edit.state is not None]
    if len(transforms) > 1:
        hint = "one function is called with the name of each slot"
        raise PlanError(f"the state of {edits[0].chain} is transformed twice", hint=hint)
    return _ship(transforms[0], packages) if transforms else None


def check_request(folder: Folder, now: GroupState, asked: ChangeRequest) -> frozenset[str]:
    """Refuse a request that cannot be met; return the chains whose types are known to fit."""
    shipped = {package.digest: package.content for package in asked.packages}
    here = (code.python_version(), code.pyarrow_version())
    typed = set()
    for name, new in asked.chains.items():
        declaration = now.declaration(name)
        there = (declaration.python, declaration.pyarrow)
        for package in asked.packages:
            code.check_versions(package.name, here, there, f"the job of {declaration.name}")
        functions = _functions(folder, declaration, new.links, shipped)
        if _check_types(folder, declaration, functions, asked.unattended):
            typed.add(name)
        if new.state is not None:
            _check_state(folder, now, declaration, new.state, shipped)
    for name in asked.chains:
        if not now.queries(name) and not asked.unattended:
            raise PlanError(
                f"no query with {name} has begun a batch in the last {ALIVE_SECONDS / 60:g} "
                "minutes: nobody can acknowledge its change",
                hint="start its job, or add --unattended to decide without anybody's word",
            )
    return frozenset(typed)


def _functions(
    folder: Folder, declaration: Declaration, links: Links, shipped: Mapping[str, bytes]
) -> tuple[code.Function, ...]:
    """Return a chain's functions as they will run: loaded here, from the bytes that are shipped."""

    def load(link: Link) -> code.Function:
        digest = link.code
        if link.own is not None:
            if link.own >= len(declaration.codes):
                raise PlanError(
                    f"{declaration.name} has no function {link.own} of its own any more",
                    hint="the job was started with fewer functions: revert to a later version",
                )
            digest = declaration.codes[link.own]
        content = shipped[digest] if digest in shipped else folder.code(digest)
        return code.unpack(content, digest)

    return tuple(function_of(link, load) for link in links)


def _check_types(
    folder: Folder, declaration: Declaration, functions: Sequence[code.Function], unattended: bool
) -> bool:
    """Run the chain on no rows, and check what it returns; return whether that could be done."""
    if not declaration.output:  # of foreachBatch: the results of its functions are theirs alone
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
