"""The rules by which a job of Flink and an image are compared. Pure.

Flink looks each operator of the image up in the job by its id (Checkpoints), then compares the key
groups (StateAssignmentOperation), and restores what it finds. Serializers are compared when the
tasks run, but for those of keys, which the job's graph names.

    version           the metadata is newer than this Flink                starts-after convert
    moved-files       files are not where the metadata names them          starts-after gather
    missing-operator  state of an operator that the code has not           starts-after rename,
                      or has under a number                                not-known
    left-behind       likewise, and --allow-non-restored drops it          starts-but, note
    max-parallelism   the code sets another number of key groups           starts-after repartition
    parallelism       more subtasks than key groups                        starts-after repartition
    key-type          keys of another type                                 never
    not-keyed         keyed state of an operator that is not keyed         starts-but
    new-operator      operators that begin without state                   note
    generated-ids     ids that another graph would change                  note
    numbered-ids      uids that SQL's planner numbers anew in each run     not-known
    backend           native state, and another backend, or nobody says    starts-after, not-known
    value-types       what only the running job tells                      not-known
    expression        with the old code: SQL's expressions                 starts-but
    expressions       what no savepoint tells                              note
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from stateshift.check.flink.job import BACKENDS, CodeJob, CodeOperator, Role
from stateshift.check.verdict import (
    CheckedPart,
    CheckedQuery,
    Difference,
    Level,
    verdict_of,
    with_waivers,
)
from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.formats.flink.operator_state import STATES
from stateshift.formats.flink.versions import READ_BY, WRITTEN_BY, flink_version, newest_for
from stateshift.specification.transform import Convert, Drop, Rename, Rescale
from stateshift.storage import locations
from stateshift.survey import Image, Operator

GROUPS_MIN, GROUPS_MAX = 1 << 7, 1 << 15  # KeyGroupRangeAssignment
LISTED = 5
NUMBERED, VALUES = "numbered-ids", "value-types"
OF_WINDOWS = "watermark"  # the state without keys of SQL's windows: a long, in each version
STATE, KEYED, UNKEYED = "the state", "the keyed state", "the operator state"
KEEP_PLAN = (
    "the planner numbers its uids anew in each run: keep the plan in a file (COMPILE PLAN, EXECUTE "
    "PLAN), and check a file of SQL that executes it"
)


@dataclass(frozen=True, slots=True)
class FlinkTarget:
    """The Flink that planned the job, and the way that it is started.

    rigid  why the state cannot be divided into other key groups
    """

    version: str
    allow_non_restored: bool
    rigid: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """A job, and the image that it shall start from.

    opened  keyed states that a rehearsal had Flink open, by operator
    before  the job of the old code; None where nobody has it
    """

    job: CodeJob
    image: Image
    target: FlinkTarget
    opened: Mapping[str, Sequence[str]] = field(default_factory=dict)
    before: CodeJob | None = None

    @cached_property
    def matched(self) -> list[tuple[Operator, CodeOperator]]:
        """The operators of the image that the code has, too."""
        by_id = self.job.by_id
        return [(each, by_id[each.id]) for each in self.image.operators if each.id in by_id]

    @cached_property
    def meant(self) -> list[tuple[Operator, CodeOperator]]:
        """The same, and those that the commands rename."""
        if self.target.allow_non_restored:
            return self.matched
        candidates = [(each, self.candidates.get(each.id)) for each in self.missing]
        renamed = [(each, found[0]) for each, found in candidates if found is not None]
        return [*self.matched, *renamed]

    @cached_property
    def candidates(self) -> dict[str, tuple[CodeOperator, str]]:
        """Operators of the code that may be missing ones under another id, and the reason."""
        found: dict[str, tuple[CodeOperator, str]] = {}
        for why, is_same in SIGNS:
            taken = {code.ids for code, _ in found.values()}
            alike = []
            for operator in self.missing:
                for code in self.fresh:
                    is_open = operator.id not in found and code.ids not in taken
                    reads = code.reads(_role(operator), _key(operator))
                    if is_open and reads and is_same(operator, code):
                        alike.append((operator.id, code))
            for id_, code in alike:
                ids, codes = [pair[0] for pair in alike], [pair[1] for pair in alike]
                if ids.count(id_) == codes.count(code) == 1:
                    found[id_] = code, why
        return found

    @cached_property
    def missing(self) -> list[Operator]:
        """The operators that have state and that the code does not have."""
        filled = [each for each in self.image.operators if each.stores]
        return [each for each in filled if each.id not in self.job.by_id]

    @property
    def new_names(self) -> dict[str, str]:
        """The names under which the code would find the others, by their old ones."""
        names = {}
        for operator in self.missing:
            found = self.candidates.get(operator.id)
            if found is not None and not found[0].is_numbered:
                names[_name(operator)] = found[0].new_name
        return names

    @cached_property
    def fresh(self) -> list[CodeOperator]:
        """The operators of the code for which the image has no state."""
        filled = {operator.id for operator in self.image.operators if operator.stores}
        return [each for each in self.job.operators if not filled.intersection(each.ids)]


def compare(pair: Pair, waive: tuple[str, ...]) -> CheckedQuery:
    """Return the verdict on a job, with the differences that nobody waived."""
    differences = with_waivers(chain.from_iterable(rule(pair) for rule in RULES), waive)
    operators: list[CheckedPart] = []
    sources: list[CheckedPart] = []
    for operator in pair.job.operators:
        keys = f" by {operator.key}" if operator.key else ""
        groups = operator.max_parallelism or "any number of"
        subtasks = f"{operator.parallelism} subtasks, {groups} key groups"
        detail = f"{operator.name}{keys} (chain {operator.vertex}, {subtasks})"
        part = CheckedPart(operator.uid or operator.ids[0], operator.role, detail)
        (sources if operator.role == "source" else operators).append(part)
    return CheckedQuery(
        query=pair.job.name,
        location=None,
        verdict=verdict_of(differences),
        differences=differences,
        operators=tuple(operators),
        sources=tuple(sources),
    )


# ---- rules ---------------------------------------------------------------------------------------


def version(pair: Pair) -> Iterator[Difference]:
    """Yield that this Flink does not read the metadata."""
    flink, newest = flink_version(pair.target.version), newest_for(pair.target.version)
    written = metadata_of(pair.image).version
    if flink is None or newest is None or written <= newest:
        return
    asked = ".".join(map(str, flink))
    yield Difference(
        "starts-after",
        "version",
        "the metadata",
        f"it is of {WRITTEN_BY[written]}, and Flink {pair.target.version} does not read it",
        changes=(Convert(flink=asked),) if flink in READ_BY else (),
    )


def moved_files(pair: Pair) -> Iterator[Difference]:
    """Yield that the folder of the image was copied, and names files where it was."""
    moved = places_of(pair.image).moved
    if moved is not None:
        was, now = moved
        fact = f"it names files below {was}, and they are below {now}: Flink does not look there"
        level: Level = "starts-after"
        if not locations.same_file_system(was, now):
            fact, level = f"{fact}, if these are two places", "not-known"
        yield Difference(level, "moved-files", "the metadata", fact, gather=True)


def missing_operators(pair: Pair) -> Iterator[Difference]:
    """Yield states that no operator of the code would read, and that Flink does not drop."""
    for operator in () if pair.target.allow_non_restored else pair.missing:
        place, fact = _place(operator), _missing(operator)
        candidate = pair.candidates.get(operator.id)
        if candidate is None:
            unmatched = [each for each in pair.missing if each.id not in pair.candidates]
            yield Difference(
                "starts-after",
                "missing-operator",
                place,
                f"{fact}: Flink refuses it",
                old=operator.id,
                changes=(Drop(operators=tuple(map(_name, unmatched))),),
                hint="the command leaves this state behind, and the old image keeps it; "
                "--allow-non-restored asks whether the code starts with that option of Flink's",
            )
            continue
        code, why = candidate
        hint = f'or let the code name the old id: .setUidHash("{operator.id}")'
        yield Difference(
            "not-known" if code.is_numbered else "starts-after",
            "missing-operator",
            place,
            f"{fact}; {code.shown} of the code begins without state, and is {why}",
            old=operator.id,
            new=code.ids[-1],
            changes=() if code.is_numbered else (Rename(operators=pair.new_names),),
            hint=KEEP_PLAN if code.is_numbered else hint,
        )


def losses(pair: Pair) -> Iterator[Difference]:
    """Yield states that Flink drops, as it is told to."""
    for operator in pair.missing if pair.target.allow_non_restored else ():
        place, fact = _place(operator), f"{_missing(operator)}: it is left behind"
        candidate = pair.candidates.get(operator.id)
        if candidate is None:
            told = f"{fact}, as --allow-non-restored asks"
            yield Difference("note", "left-behind", place, told)
            continue
        code, why = candidate
        yield Difference(
            "starts-but",
            "left-behind",
            place,
            f"{fact}, while {code.shown} begins without state, and is {why}",
            hint="without --allow-non-restored, the command that renames it is printed",
        )


def max_parallelism(pair: Pair) -> Iterator[Difference]:
    """Yield each number of key groups that the code sets and the state does not have."""
    wanted: dict[int, list[tuple[Operator, CodeOperator]]] = {}
    for operator, code in pair.meant:
        own = code.max_parallelism
        if own is not None and own != _groups(operator):
            wanted.setdefault(own, []).append((operator, code))
    for groups, unequal in wanted.items():
        names = ", ".join(code.shown for _, code in unequal[:LISTED])
        held = sorted({_groups(operator) for operator, _ in unequal})
        yield _rescaling(
            pair,
            "max-parallelism",
            f"the code sets max parallelism {groups} for {names}, and the state is in "
            f"{', '.join(map(str, held))} key groups",
            None if len(wanted) > 1 else groups,
            f"or leave it to the state: setMaxParallelism({held[0]})",
        )


def parallelism(pair: Pair) -> Iterator[Difference]:
    """Yield that there are more subtasks than key groups."""
    wide = []
    for operator, code in pair.meant:
        if code.max_parallelism is None and code.parallelism > _groups(operator):
            wide.append((operator, code))
    if not wide:
        return
    names = ", ".join(code.shown for _, code in wide[:LISTED])
    most, fewest = max(c.parallelism for _, c in wide), min(_groups(o) for o, _ in wide)
    yield _rescaling(
        pair,
        "parallelism",
        f"{most} subtasks of {names} are more than the {fewest} key groups of the state",
        min(max(1 << (most + most // 2 - 1).bit_length(), GROUPS_MIN), GROUPS_MAX),
        f"or start with --parallelism {fewest} or less",
    )


def _rescaling(pair: Pair, rule: str, fact: str, groups: int | None, hint: str) -> Difference:
    """Return the finding on another number of key groups, with the command where one exists."""
    obstacle = next(iter(pair.target.rigid), None)
    if groups is None:
        obstacle = "stateshift gives all operators one number of key groups"
    if obstacle is not None:
        hint = f"{hint}. No command changes it: {obstacle}"
    changes = () if obstacle is not None else (Rescale(max_parallelism=groups),)
    return Difference("starts-after", rule, "key groups", fact, changes=changes, hint=hint)


def keys(pair: Pair) -> Iterator[Difference]:
    """Yield operators whose keys have another type, or that have none any more."""
    for operator, code in pair.matched:
        if _role(operator) != "keyed":
            continue
        if code.role != "keyed":
            yield Difference(
                "starts-but",
                "not-keyed",
                _place(operator),
                f"it is not keyed in the code: its keyed state is not read: {_states(operator)}",
            )
        old = _key(operator)
        if old is not None and code.key is not None and old != code.key:
            yield Difference(
                "never",
                "key-type",
                _place(operator),
                f"its keys were {old}, and are {code.key}: Flink does not change the type of keys",
                old=old,
                new=code.key,
                hint="give the operator another uid, and it begins without state; "
                "`stateshift export` reads what the state holds",
            )


def new_operators(pair: Pair) -> Iterator[Difference]:
    """Yield the sources and keyed operators that begin without state."""
    names = [each.shown for each in pair.fresh if each.role != "operator"]
    if names:
        shown = ", ".join(names[:LISTED])
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        yield Difference(
            "note", "new-operator", "the code", f"without state in the image: {shown}{more}"
        )


def generated_ids(pair: Pair) -> Iterator[Difference]:
    """Yield the operators whose ids another graph would change."""
    names = []
    for operator, code in pair.matched:
        if operator.stores and code.uid is None:
            names.append(code.shown)
    if names:
        yield Difference(
            "note",
            "generated-ids",
            "the code",
            f"{', '.join(names[:LISTED])} are found by their place in the graph: any other "
            "operator at that place would get their state",
            hint="name them by .uid(), and the state by `stateshift rename`; of SQL, keep the plan "
            "in a file (COMPILE PLAN)",
        )


def numbered_ids(pair: Pair) -> Iterator[Difference]:
    """Yield the operators whose uids another run of SQL's planner may give to others."""
    names = [code.shown for operator, code in pair.matched if code.is_numbered]
    if names:
        yield Difference(
            "not-known",
            NUMBERED,
            "the code",
            f"{', '.join(names[:LISTED])} have uids by chance: Flink may not find their state",
            hint=f"{KEEP_PLAN}. If the jar executes such a plan: --waive {NUMBERED}",
        )


def backend(pair: Pair) -> Iterator[Difference]:
    """Yield that one backend alone reads the state, if it is not known to be the job's."""
    providers = {operator.provider or "canonical" for operator, _ in pair.matched}
    native = sorted(providers - {"canonical"})
    own = pair.job.backend
    canonical = "a canonical savepoint starts with any: flink stop --type canonical"
    fact = f"it is native to {', '.join(native)}"
    if native and (own not in BACKENDS.values() or "changelog" in native):
        unknown, hint = f"nobody knows whether {own} reads it", "--rehearse"
        if own is None:
            unknown = "neither the code nor conf/ of this Flink names a state backend"
            hint = "name the cluster's configuration, $FLINK_CONF_DIR"
        hint += f", or accept it, --waive backend; {canonical}"
        yield Difference("not-known", "backend", STATE, f"{fact}, and {unknown}", hint=hint)
    elif not all(name.endswith(str(own)) for name in native):
        yield Difference(
            "starts-after",
            "backend",
            STATE,
            f"{fact}, and the job's state backend is {own}: it does not read it",
            old=", ".join(native),
            new=own,
            hint=f"set state.backend.type to {native[0].rpartition(' ')[2]}; {canonical}",
        )


def value_types(pair: Pair) -> Iterator[Difference]:
    """Yield the states whose types nobody has compared: those with keys, and the others."""
    keyed, unkeyed = [], []
    for operator, code in pair.meant:
        known = (*STATES, OF_WINDOWS) if code.code else STATES
        own = [state for state in _states_of(operator) if state["kind"] != "operator"]
        opened = pair.opened.get(operator.id, ())
        keyed += [str(state["name"]) for state in own if state["name"] not in opened]
        if _role(operator) == "keyed" and not (own or operator.id in pair.opened):
            keyed.append(f"all of {operator.uid or operator.id}")
        for state in _states_of(operator):
            if state["kind"] == "operator" and state["name"] not in known:
                unkeyed.append(str(state["name"]))
    told = [name for name in keyed if not name.startswith("_timer_state/")]
    accept = f"accept it: --waive {VALUES}"
    when, open_it = "when the job runs", f"have Flink open it: --rehearse, or {accept}"
    if pair.opened:
        when = "with the first record, by which the functions ask for them"
        open_it = f"ask for them in open() or initializeState(), or {accept}"
    for place, names, then, hint in (
        (KEYED, told, when, open_it),
        (UNKEYED, unkeyed, "when the job runs", f"a rehearsal does not open it; to {accept}"),
    ):
        if names:
            more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            shown = f"{', '.join(names[:LISTED])}{more}"
            fact = f"the types of values are known only {then}: {shown}"
            yield Difference("not-known", VALUES, place, fact, hint=hint)


def expressions(pair: Pair) -> Iterator[Difference]:
    """Yield expressions of SQL that are other ones, and that an image tells nothing of all else."""
    unknown = []
    by_id = {} if pair.before is None else pair.before.by_id
    for operator, code in pair.meant:
        old = by_id.get(operator.id)
        if _role(operator) != "keyed":
            continue
        if old is None or not (old.code and code.code):
            unknown.append(code.shown)
        elif old.code != code.code:
            was, now = (
                "; ".join(line for line in one.code if line not in other.code)
                for one, other in ((old, code), (code, old))
            )
            message = "its expressions are other ones, and continue from the state of the old ones"
            yield Difference("starts-but", "expression", _place(operator), message, was, now)
    if unknown:
        names = ", ".join(unknown[:LISTED])
        message = f"the image does not tell what computed the state of {names}"
        hint = (
            "other code with state of the same names and types continues from it, without an "
            "error. Expressions of SQL are compared if you name the old file: --before OLD.sql"
        )
        yield Difference("note", "expressions", "the code", message, hint=hint)


RULES = (
    version,
    moved_files,
    missing_operators,
    losses,
    max_parallelism,
    parallelism,
    keys,
    new_operators,
    generated_ids,
    numbered_ids,
    backend,
    value_types,
    expressions,
)


# ---- operators -----------------------------------------------------------------------------------


SIGNS: tuple[tuple[str, Callable[[Operator, CodeOperator], bool]], ...] = (
    ("at the same place in the graph", lambda operator, code: operator.id == code.plain_id),
    (
        "called the same: be sure that they are the same",
        lambda operator, code: operator.name == code.name,
    ),
    (
        "the only one of its kind: be sure that they are the same",
        lambda operator, code: code.role != "operator",
    ),
)


def _role(operator: Operator) -> Role:
    names = {store.name for store in operator.stores}
    if names & {"keyed", "raw keyed"}:
        return "keyed"
    return "source" if "coordinator" in names else "operator"


def _groups(operator: Operator) -> int:
    number = operator.details["max_parallelism"]
    assert isinstance(number, int)
    return number


def _states_of(operator: Operator) -> list[Mapping[str, object]]:
    states = operator.details["states"]
    assert isinstance(states, list)
    return states


def _key(operator: Operator) -> str | None:
    """Return the type of its keys in words; None where the image does not tell it."""
    keys = [state["key"] for state in _states_of(operator) if state["key"] is not None]
    return str(keys[0]) if keys else None


def _states(operator: Operator) -> str:
    names = [str(state["name"]) for state in _states_of(operator)]
    return ", ".join(names or [store.name for store in operator.stores])


def _missing(operator: Operator) -> str:
    return f"the code has no operator {operator.id}, and it has state: {_states(operator)}"


def _place(operator: Operator) -> str:
    return f"operator {operator.uid or operator.name or operator.id}"


def _name(operator: Operator) -> str:
    """Return the name by which commands take it."""
    return operator.uid or operator.id
