"""Whoever changes the chains of a group: checks, proposes, waits for the workers, decides.

    check     what can be known without any worker: code, Python, types
    propose   the new chains, with their code, to everybody
    carry     the coordinator's table (`protocol.coordinator`) over files: what workers say are its
              words, what it orders is the decision
    abort     what is not decided

A change is *requested* when it is proposed; every worker *acknowledges* it, also where it has no
part in it; it is *completed* when it is decided and every worker runs it. Whoever refuses aborts
it, and so does time. A worker that has no task at the moment cannot answer, and need not: it reads
what is decided before its next task begins. It counts as having answered once its query has begun a
second batch since.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stateshift.errors import (
    AlreadyThere,
    FormatError,
    Incompatible,
    PlanError,
    StalePlan,
    StorageError,
    TransientStorageError,
)
from stateshift.live import code, signing, state
from stateshift.live.folder import Folder, Said, Worker
from stateshift.live.member import ACKNOWLEDGED, RUNNING, decided_here, process_name
from stateshift.live.protocol import coordinator as table
from stateshift.live.protocol.chains import (
    Change,
    Decided,
    Declaration,
    Known,
    Link,
    Links,
    NewChain,
    OnError,
    Outcome,
    Reverted,
    Version,
    encode,
    links_at,
    newest,
    transforms,
)
from stateshift.live.protocol.coordinator import Coordinator
from stateshift.live.protocol.coordinator_messages import (
    Acknowledged,
    Complete,
    Refused,
    Running,
    Word,
)
from stateshift.live.protocol.task_flow import Deployment, Flow, Replacement, Task
from stateshift.live.rows import check_returned, empty_input, from_base64, run_on_no_rows
from stateshift.live.state import function_of
from stateshift.live.waiting import Pause

logger = logging.getLogger(__name__)

COUNT_SECONDS = 0.3
SETTLED_EVERY = 10  # changes; as many are read one by one by a worker that begins
# A query that has begun no batch for so long is not waited for: it reads what is decided when it
# begins one.
ALIVE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants: new chains by name, and how they shall be brought in."""

    act: str
    chains: Mapping[str, NewChain]
    scheduler: str
    packages: tuple[code.Package, ...] = ()
    on_error: OnError = "fail"
    timeout_seconds: float = 60.0
    key: str | None = None
    # Whether it may be decided although no worker of the targets is there to acknowledge it.
    unattended: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """A group as a controller finds it: its chains, its changes, and who runs what."""

    group: str
    declarations: Mapping[str, Declaration]
    changes: tuple[Known, ...]
    workers: tuple[Said, ...]
    # when each query last began a batch, which, and with which version
    last_begun: Mapping[str, float]
    last_batches: Mapping[str, int]
    last_versions: Mapping[str, Version]

    @property
    def living(self) -> tuple[Said, ...]:
        """The workers of queries that have begun a batch of late, or one that they had begun before
        they went back to an older checkpoint.
        """
        last_seen = dict(self.last_begun)
        for said in self.workers:
            last_seen[said.query] = max(said.at, last_seen.get(said.query, 0.0))
        since = time.time() - ALIVE_SECONDS
        return tuple(said for said in self.workers if last_seen[said.query] > since)

    @property
    def version(self) -> Version:
        """The newest version that is applied."""
        return newest(self.changes)

    def declaration(self, chain: str) -> Declaration:
        """Return what is declared of a chain, or refuse with those there are."""
        if chain not in self.declarations:
            known = ", ".join(sorted(self.declarations)) or "none"
            raise PlanError(f"there is no chain {chain!r}", hint=f"chains of the group: {known}")
        return self.declarations[chain]

    def links(self, chain: str, version: Version | None = None) -> Links:
        """Return a chain's functions as of a version, or as they are now."""
        at = self.version if version is None else version
        return links_at(self.changes, chain, self.declaration(chain).first, at)

    def queries(self, chain: str) -> frozenset[str]:
        """Return the queries that run a chain."""
        return frozenset(said.query for said in self.living if said.chain == chain)


def standing(folder: Folder) -> Standing:
    """Return a group as it is, or refuse a folder that is none."""
    group = folder.check()
    declarations = {}
    for name in folder.chains():
        declaration = folder.declaration(name)
        if declaration is not None:
            declarations[name] = declaration
    last_begun, last_versions = {}, {}
    last_batches = folder.last_batches()
    for query, number in last_batches.items():
        seal = folder.sealed(query, number)
        last_begun[query] = 0.0 if seal is None else seal.at
        last_versions[query] = 0 if seal is None else seal.version
    return Standing(
        group=group,
        declarations=declarations,
        changes=_changes(folder),
        workers=folder.workers(),
        last_begun=last_begun,
        last_batches=last_batches,
        last_versions=last_versions,
    )


def _changes(folder: Folder) -> tuple[Known, ...]:
    """Return all changes. One may have taken itself back after it was read: none can any more once
    a later one is applied.
    """
    changes = list(folder.changes())
    last = newest(changes)
    for place, known in enumerate(changes):
        if known.number < last and _takes_itself_back(known):
            changes[place] = replace(known, reverted=folder.reverted(known.number))
    return tuple(changes)


# ------------------------------------------------------------------------------------ checks


def check(folder: Folder, now: Standing, asked: Asked) -> frozenset[str]:
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
    now: Standing,
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
            slots = state.transformed(functions, kept.slots)
        except Exception as error:
            raise Incompatible(
                f"{name}: {link.name} cannot transform the state of query {query}: "
                f"{type(error).__name__}: {error}",
                hint="it is called with the slot's name and the state, and returns the state",
            ) from error
        state.encode(name, replace(kept, slots=slots))


def _check_attended(now: Standing, asked: Asked) -> None:
    """Refuse targets that nobody runs: nobody could acknowledge."""
    for name in asked.chains:
        if not now.queries(name) and not asked.unattended:
            raise PlanError(
                f"no query with {name} has begun a batch in the last {ALIVE_SECONDS / 60:g} "
                "minutes: nobody can acknowledge its change",
                hint="start its job, or add --unattended to decide without anybody's word",
            )


# ------------------------------------------------------------------------------------ proposing


def propose(folder: Folder, now: Standing, asked: Asked) -> Change:
    """Ship the code, then propose the change; one at a time."""
    close_overdue(folder, now)
    change = Change(
        group=now.group,
        number=len(now.changes) + 1,
        act=asked.act,
        chains=asked.chains,
        at=time.time(),
        timeout_seconds=asked.timeout_seconds,
        scheduler=asked.scheduler,
        on_error=asked.on_error,
        by=process_name(),
    )
    signature = None if asked.key is None else signing.sign(encode(change), asked.key)
    try:
        _settle(folder, now)
        for package in asked.packages:
            folder.write_code(package.digest, package.content)
        folder.propose(change, signature)
    except AlreadyThere:
        raise PlanError(
            f"somebody else has proposed change {change.number} in this moment",
            hint=_command("status", folder),
        ) from None
    except TransientStorageError:
        raise
    except StorageError as error:
        hint = "nothing has changed: when that is mended, run this command again"
        raise error.with_hint(hint) from None
    return change


def _settle(folder: Folder, now: Standing) -> None:
    """Write the changes that nobody can alter any more into one file, now and then."""
    settled = [known for known in now.changes if known.number < now.version]
    if len(settled) % SETTLED_EVERY == 0 and settled:
        folder.settle(settled)


def close_overdue(folder: Folder, now: Standing) -> None:
    """Abort the change that is under way if its time is over; refuse if it is not."""
    if not now.changes or now.changes[-1].decided is not None:
        return
    change = now.changes[-1].change
    if time.time() < change.expires:
        raise PlanError(
            f"change {change.number} is under way since {time.time() - change.at:.0f} s",
            hint=f"wait for it, or: {_command('abort', folder)}",
        )
    if folder.decide(change.number, decided_here("aborted", change.overdue)).outcome == "applied":
        raise StalePlan(
            f"change {change.number} was applied in this moment",
            hint="run this command again: it goes by what runs now",
        )


def abort(folder: Folder, now: Standing) -> Known:
    """Abort what is under way; return what it was, and what became of it."""
    if not now.changes or now.changes[-1].decided is not None:
        raise PlanError("nothing is under way", hint=_way_back(folder, now.changes))
    known = now.changes[-1]
    held = folder.decide(known.number, decided_here("aborted", "stateshift live abort"))
    known = replace(known, decided=held)
    if known.applied:
        raise PlanError(
            f"change {known.number} was applied in this moment",
            hint=_way_back(folder, (known,)),
        )
    return known


def _way_back(folder: Folder, changes: Sequence[Known]) -> str:
    """Return the command that takes the newest change back; where there is none, the one that
    shows what runs.
    """
    held = [known for known in changes if known.holds]
    if not held:
        return _command("status", folder)
    return _command("revert", folder, *held[-1].change.chains)


def _command(name: str, folder: Folder, *chains: str) -> str:
    """Return a command about the group, to be pasted."""
    return shlex.join(("stateshift", "live", name, folder.location, *chains))


# ------------------------------------------------------------------------------------ carrying


@dataclass(frozen=True, slots=True)
class Carried:
    """What became of a change so far: the coordinator's table, and when what was reached."""

    change: Change
    state: Coordinator
    workers: int
    acknowledged: int
    running: int
    decided: Decided | None
    first_seconds: float | None
    last_seconds: float | None
    # the error that has taken it back, if one has while it was waited for
    reverted: Reverted | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the workers to run a change once it is decided, and whether for anybody
    at all. The decision itself has the change's own time.
    """

    seconds: float
    unattended: bool = False


def carry(
    folder: Folder,
    now: Standing,
    change: Change,
    patience: Patience,
    progress: Callable[[Carried], None] = lambda carried: None,
) -> Carried:
    """Follow a change until every worker runs it, it is aborted, or the time to wait is over. It is
    never left undecided.
    """
    carrier = _Carrier(folder, now, change, patience.unattended)
    pause = Pause(time.sleep)
    while True:
        carried = carrier.step()
        progress(carried)
        if carried.state.state not in ("running", "rolling-back"):
            return carried
        if carried.decided and not carried.workers:
            return carried
        if carried.decided and time.time() >= carried.decided.at + patience.seconds:
            return carried
        pause()


class _Carrier:
    """The coordinator of one change, over a group's folder."""

    def __init__(self, folder: Folder, now: Standing, change: Change, unattended: bool) -> None:
        self.folder = folder
        self.change = change
        self.unattended = unattended
        self.previous = now.version
        last = now.changes[now.version - 1] if now.version else None
        self._may_be_taken_back = last is not None and _takes_itself_back(last)
        self.tasks = _tasks(said.worker for said in now.living)
        self.heard: dict[str, Said] = {}
        self.decided: Decided | None = None
        self.before = self.folder.last_batches()
        self.begun = self.before
        self.counted = 0.0
        flow = Flow(Counter(task.operator for task in self.tasks.values()), ())
        places = Deployment(flow, dict.fromkeys(flow.tasks, change.group), {})
        asked = Replacement(f"change {change.number}", tuple(flow.operators))
        self.state, _, _ = table.begin(places, asked, change.number, change.at)

    def step(self) -> Carried:
        """Hear what is new, and decide as the table says."""
        for path in self.folder.words(self.change.number):
            said = None if path in self.heard else self._heard(path)
            if said is not None and said.worker in self.tasks:
                self._take(said.worker, said.word, said.reason)
        self._count_absent()
        self._heed_others()
        return self._carried()

    def _heard(self, path: str) -> Said | None:
        """Return a word that is new; None if it cannot be read, as if it had not been said."""
        try:
            self.heard[path] = self.folder.word(path)
        except FormatError as error:
            logger.warning("%s: %s", error.path, error.fact)
            return None
        return self.heard[path]

    def _take(self, worker: Worker, word: str, reason: str = "") -> None:
        """Give a word to the table. What it then orders is decided first: if somebody else has
        decided otherwise, the word is not taken.
        """
        task = self.tasks[worker]
        after, _, orders = table.advance(self.state, _word(task, word, reason), time.time())
        completes = any(isinstance(order, Complete) for _, order in orders)
        if completes and self._apply().outcome == "aborted":
            return  # `_heed_others` takes that over
        if after.state == "rolling-back" and self.decided is None:
            refusal = f"{worker.chain}-{worker.partition}: {reason}"
            if self._decide("aborted", refusal).outcome == "applied":
                return  # somebody else has; who refuses it cannot hinder that any more
        self.state = after

    def _apply(self) -> Decided:
        """Decide that the change holds, unless the one before it has taken itself back since: then
        it was made for a chain that is another one now. From here on that one holds for good.
        """
        reverted = self.folder.keep(self.previous) if self._may_be_taken_back else None
        if reverted is not None:
            reason = f"change {self.previous} was taken back in this moment: {reverted.error}"
            return self._decide("aborted", reason)
        return self._decide("applied")

    def _decide(self, outcome: Outcome, reason: str = "") -> Decided:
        self.decided = self.folder.decide(self.change.number, decided_here(outcome, reason))
        self.before = self.begun = self.folder.last_batches()
        return self.decided

    def _count_absent(self) -> None:
        """Count the workers that have no task as having answered: those whose query has begun two
        batches without a word of theirs. A task that begins reads what is decided first.
        """
        if self.unattended and not self.tasks and self.decided is None:
            self._apply()
        now = time.time()
        if now - self.counted >= COUNT_SECONDS and not self.unattended:
            self.counted = now
            self.begun = self.folder.last_batches()
        for worker in self.tasks:
            begun = self.begun.get(worker.query, -1) - self.before.get(worker.query, -1)
            if self.unattended or begun >= 2:
                self._take(worker, ACKNOWLEDGED if self.decided is None else RUNNING)

    def _heed_others(self) -> None:
        """Take over what somebody else has decided, and abort what is overdue."""
        if self.decided is None:
            self.decided = self.folder.decided(self.change.number)
        if self.decided is None and time.time() >= self.change.expires:
            seconds = self.change.timeout_seconds
            self._decide("aborted", f"{self._silent()} did not answer within {seconds:g} s")
        if self.decided is not None and self.decided.outcome == "aborted":
            self._abort(self.decided.reason)

    def _abort(self, reason: str) -> None:
        """Take an abort to its end: nobody has held anything back, everybody runs on as before."""
        self.state = table.given_up(self.state, reason, time.time())

    def _silent(self) -> str:
        """Return the workers that have not answered, for people."""
        answered = {said.worker for said in self.heard.values()}
        silent = sorted(f"{one.chain}-{one.partition}" for one in self.tasks.keys() - answered)
        more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
        return f"{', '.join(silent[:3])}{more}" if silent else "nobody"

    def _carried(self) -> Carried:
        running = [said.at for said in self.heard.values() if said.word == RUNNING]
        return Carried(
            change=self.change,
            state=self.state,
            workers=len(self.tasks),
            acknowledged=len(self.state.acknowledged),
            running=len(self.state.resumed),
            decided=self.decided,
            first_seconds=min(running) - self.change.at if running else None,
            last_seconds=max(running) - self.change.at if running else None,
            reverted=self._reverted(),
        )

    def _reverted(self) -> Reverted | None:
        """Return the error that has taken the change back, where it is one that does so."""
        if self.change.on_error != "revert" or self.decided is None:
            return None
        return self.folder.reverted(self.change.number)


def _takes_itself_back(known: Known) -> bool:
    """Whether a change may still take itself back at an error."""
    return known.change.on_error == "revert" and known.applied and known.reverted is None


def _tasks(workers: Iterable[Worker]) -> Mapping[Worker, Task]:
    """Return each worker's task in the coordinator's table, numbered within its operator: of a
    union's second branch the partitions do not begin at 0.
    """
    tasks: dict[Worker, Task] = {}
    counts: Counter[str] = Counter()
    for worker in sorted(set(workers), key=lambda worker: (worker.operator, worker.partition)):
        tasks[worker] = Task(worker.operator, counts[worker.operator])
        counts[worker.operator] += 1
    return tasks


def _word(task: Task, word: str, reason: str) -> Word:
    match word:
        case "refused":
            return Refused(task, reason)
        case "running":
            return Running(task)
        case _:
            return Acknowledged(task, ("replaces",))
