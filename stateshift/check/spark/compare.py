"""The code's query held against the checkpoint's, by rules that real Sparks have shown. Pure.

Each rule is a generator of differences. `tests/check/corpus.py` holds the pairs of old and new code
that establish them, with what Spark did to each.

    query       Spark starts the query with no checkpoint at all
    operators   Spark compares ids and names with the operators' metadata (since 4.0)
    schemas     Spark compares types by position; names tell us what it does not see
    windows     lengths and grid of the windows in the state, against those of the code
    watermarks  the delay is kept in the metadata of the event-time column
    sources     Spark compares their number; the offset log tells kinds, topics and folders
    sinks       only with the old code: no checkpoint tells its sink
    settings    the offset log's values win over the session's
    code        only with the old code: what the schemas cannot tell
    refusal     Spark's own planner refuses what no rule above has found
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from stateshift.check.spark.columns import (
    ColumnChange,
    Field,
    column_change,
    columns_text,
    fields_of,
    paths_of,
    takes,
)
from stateshift.check.spark.query import Operator
from stateshift.check.spark.rules import (
    DROPPED,
    Pair,
    aliases,
    changed_lines,
    is_same_kind,
    sinks,
    sources,
    watermarks,
    windows,
)
from stateshift.check.verdict import (
    CheckedPart,
    CheckedQuery,
    Difference,
    Level,
    verdict_of,
    with_waivers,
)
from stateshift.engines.spark.rewrite.evolution import evolution_of
from stateshift.formats.spark import offset_conf
from stateshift.formats.spark.operator_metadata import AGGREGATION, REAL_TIME_AGGREGATION
from stateshift.formats.spark.row_change import Unfit
from stateshift.formats.spark.schema import StoreSchema
from stateshift.specification.transform import Change, Convert, Drop, Evolve, Rename, Repartition

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
NEW_COLUMNS = "what is in the state already has null in a new column, or 0 in a count"
EXPORT = "keep what is in it: stateshift export"

# The columns that an aggregate keeps; one if it is not here.
BUFFERS = {
    **dict.fromkeys(("avg", "mean", "first", "last", "try_avg", "any_value"), 2),
    **dict.fromkeys(("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"), 3),
}
# The first values of columns of Spark's own; null for all others.
BEGINS_WITH = {"count": 0, "timeoutTimestamp": -1}
DEDUPLICATION = "dedupe"  # whose values Spark does not compare (StreamingDeduplicateExec)
KINDS = {
    AGGREGATION: "aggregation",
    REAL_TIME_AGGREGATION: "aggregation",
    "sessionWindowStateStoreSaveExec": "session windows",
    "symmetricHashJoin": "stream-stream join",
    DEDUPLICATION: "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "globalLimit": "limit",
    "flatMapGroupsWithState": "state of groups",
    "applyInPandasWithState": "state of groups (Python)",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState (Python)",
    "transformWithStateInPySparkExec": "transformWithState (Python)",
}
# The kinds that hold a function of the user's.
WITH_FUNCTIONS = tuple(name for name in KINDS if "WithState" in name)


def compare(pair: Pair, waived: Sequence[str] = ()) -> CheckedQuery:
    """Return the verdict on the new query; differences of waived rules change none."""
    differences: list[Difference] = []
    for rule in RULES:
        differences += rule(pair)
    refused = [each for each in differences if each.level in ("never", "starts-after")]
    if not refused:
        differences += refusal(pair)
    judged = with_waivers(differences, waived)
    query = pair.new
    operators = []
    for operator in query.operators:
        name = operator.name or "?"
        kind = KINDS.get(name, name)
        operators.append(CheckedPart(operator.id, kind, operator.columns))
    sources = []
    for number, source in enumerate(query.sources):
        detail = ", ".join(source.topics or source.places)
        sources.append(CheckedPart(str(number), source.kind, detail))
    return CheckedQuery(
        query=query.name,
        location=query.location,
        verdict=verdict_of(judged),
        differences=judged,
        operators=tuple(operators),
        sources=tuple(sources),
    )


# ---- query, operators ----------------------------------------------------------------------------


def query(pair: Pair) -> Iterator[Difference]:
    """Yield the error by which Spark starts the query with no checkpoint at all."""
    invalid = pair.new.invalid
    if invalid is not None:
        yield Difference(
            "never",
            "query",
            "query",
            f"Spark never starts this query: [{invalid.error_class}] {invalid.message}",
        )


def operators(pair: Pair) -> Iterator[Difference]:
    """Yield operators that are not those of the checkpoint; renumbered ones can be mended."""
    if pair.new.invalid is not None:
        return
    old = {operator.id: operator for operator in pair.stored.operators}
    new = {operator.id: operator for operator in pair.new.operators}
    is_same = old.keys() == new.keys()
    if is_same and all(is_same_kind(old[number], new[number]) for number in old):
        return
    was, now = _listed(pair.stored.operators), _listed(pair.new.operators)
    are_unnamed = all(operator.name is None for operator in old.values())
    if are_unnamed and new.keys() < old.keys() and len([*pair.shared]) == len(new):
        message = f"the stateful operators were {was}, and are {now}: Spark does not notice it"
        why = f"Spark 3 kept no names of operators. {DROPPED.capitalize()}"
        level: Level = "starts-but" if new else "note"
        yield Difference(level, "operators", "query", message, was, now, hint=why)
        return
    message = f"the stateful operators were {was}, and are {now}: Spark refuses the checkpoint"
    renumbered = _renumbered(pair)
    if renumbered is not None:
        hint = DROPPED if len(old) > len(new) else None
        yield Difference("starts-after", "operators", "query", message, was, now, renumbered, hint)
        return
    yield Difference("never", "operators", "query", message, was, now, hint=EXPORT)


def _listed(shown: Sequence[Operator]) -> str:
    names = [f"{each.id} {KINDS.get(each.name or '', each.name or 'unnamed')}" for each in shown]
    return ", ".join(names) or "none"


def _renumbered(pair: Pair) -> tuple[Change, ...] | None:
    """Return the changes that give each operator of the code one of the checkpoint, if one way is
    the only one.
    """
    old, new = pair.stored.operators, pair.new.operators
    if not new or len(old) < len(new) or len(old) > 8:
        return None
    ways = []
    for chosen in permutations(old, len(new)):
        if all(_fits(theirs, mine) for theirs, mine in zip(chosen, new, strict=True)):
            ways.append(chosen)
    if len(ways) != 1:
        return None
    (chosen,) = ways
    moved = {
        theirs.id: mine.id for theirs, mine in zip(chosen, new, strict=True) if theirs.id != mine.id
    }
    dropped = tuple(each.id for each in old if each not in chosen)
    changes: list[Change] = []
    if dropped:
        changes.append(Drop(operators=dropped))
    if moved:
        changes.append(Rename(operators=moved))
    return tuple(changes)


def _fits(old: Operator, new: Operator) -> bool:
    if not is_same_kind(old, new) or old.stores.keys() != new.stores.keys():
        return False
    for name, schema in new.stores.items():
        theirs = old.stores[name]
        if not takes(fields_of(schema.key), fields_of(theirs.key)):
            return False
        if not takes(fields_of(schema.value), fields_of(theirs.value)):
            return False
    return True


# ---- schemas -------------------------------------------------------------------------------------


def schemas(pair: Pair) -> Iterator[Difference]:
    """Yield differences of keys and values, of all stores of the shared operators."""
    is_avro = pair.stored.settings.get(offset_conf.ENCODING) == "avro"
    for old, new in pair.shared:
        sides = _exchanged_sides(old, new)
        if sides is not None:
            yield sides
            continue
        for store, schema in new.stores.items():
            if store not in old.stores or (is_avro and "/" in store):
                continue  # Spark says itself what it makes of those
            yield from _store(Stores(new, store, old.stores[store], schema), pair)
        if "transformWithState" in (new.name or ""):
            yield from _variables(old, new)


def _variables(old: Operator, new: Operator) -> Iterator[Difference]:
    """Yield state variables that one side has: Spark begins new ones empty, and drops old ones."""
    was, now = (
        {store.rpartition("/")[2] for store in each.stores if "/$" not in store}
        for each in (old, new)
    )
    come, gone = ", ".join(sorted(now - was)), ", ".join(sorted(was - now))
    place = f"operator {new.id}"
    if come:
        message = f"the state has no {come}: it begins empty, for keys with other state, too"
        hint = f"if it was {gone}, give it its old name" if gone else None
        yield Difference("starts-but", "new-variable", place, message, gone, come, hint=hint)
    if gone:
        yield Difference("note", "dropped-variable", place, f"Spark drops {gone}", old=gone)


@dataclass(frozen=True, slots=True)
class Stores:
    """One store of an operator: its schema in the checkpoint, and the code's."""

    operator: Operator
    store: str
    old: StoreSchema
    new: StoreSchema

    @property
    def place(self) -> str:
        """The name of the store in messages."""
        suffix = "" if self.store == "default" else f", store {self.store}"
        return f"operator {self.operator.id}{suffix}"


def _store(stores: Stores, pair: Pair) -> Iterator[Difference]:
    old_key, new_key = fields_of(stores.old.key), fields_of(stores.new.key)
    old_value, new_value = fields_of(stores.old.value), fields_of(stores.new.value)
    key_fits, value_fits = takes(new_key, old_key), takes(new_value, old_value)
    meanings = Meanings.of(pair, stores.operator)
    place = stores.place
    if key_fits:
        yield from _names("key", place, old_key, new_key, meanings)
    if value_fits:
        yield from _names("value", place, old_value, new_value, meanings)
    if key_fits and not value_fits and stores.operator.name == DEDUPLICATION:
        message = "the state is of a deduplication that forgets its keys: they stay, and no others"
        was, now = columns_text(old_value), columns_text(new_value)
        yield Difference("starts-but", "deduplication", place, message, was, now)
    elif not (key_fits and value_fits):
        yield _refused(stores, key_fits, value_fits)


@dataclass(frozen=True, slots=True)
class Meanings:
    """The columns that aliases stand for, in the old code and in the new."""

    old: Mapping[str, str] | None  # None where nobody knows the old code
    new: Mapping[str, str]

    @classmethod
    def of(cls, pair: Pair, operator: Operator) -> Meanings:
        """Return those of one operator."""
        before = pair.before_of(operator)
        return cls(None if before is None else aliases(before.code), aliases(operator.code))

    def differ(self, old: str, new: str) -> bool:
        """Whether the column of the state is, as far as is known, not that of the code."""
        if self.old is None:
            return old not in (new, self.new.get(new, new))
        return self.old.get(old, old) != self.new.get(new, new)


def _names(
    part: str, place: str, old: Sequence[Field], new: Sequence[Field], meanings: Meanings
) -> Iterator[Difference]:
    """Yield columns of one type that have other names: Spark takes one for the other."""
    was, now = ([path for path, _ in paths_of(fields)] for fields in (old, new))
    pairs = [pair for pair in zip(was, now, strict=True) if meanings.differ(*pair)]
    if not pairs:
        return
    shown = ", ".join(f"{one} as {other}" for one, other in pairs)
    old_text, new_text = columns_text(old), columns_text(new)
    if sorted(was) == sorted(now):
        message = f"the {part} has its columns in another order, and Spark reads {shown}"
        yield Difference(
            "starts-but",
            f"{part}-order",
            place,
            message,
            old_text,
            new_text,
            hint="write them in the old order",
        )
    else:
        message = f"Spark reads {shown}: the {part} has columns of the same types"
        yield Difference("starts-but", f"{part}-names", place, message, old_text, new_text)


def _refused(stores: Stores, key_fits: bool, value_fits: bool) -> Difference:
    """Return the difference of a store that Spark refuses, with its change, if there is one."""
    old_key, new_key = fields_of(stores.old.key), fields_of(stores.new.key)
    old_value, new_value = fields_of(stores.old.value), fields_of(stores.new.value)
    keys, values = column_change(old_key, new_key), column_change(old_value, new_value)
    part, rule = ("value", "value-schema") if key_fits else ("key", "key-schema")
    place = stores.place
    was = columns_text(old_value if key_fits else old_key)
    now = columns_text(new_value if key_fits else new_key)
    reason = _unfit(keys, "key") if not key_fits else None
    reason = reason or (_unfit_value(stores.operator, values) if not value_fits else None)
    message = f"the {part} was ({was}), and is ({now}): Spark refuses it"
    if "transformWithState" in (stores.operator.name or ""):
        reason = reason or "no command changes a variable of transformWithState"
    if reason is None:
        change = _evolve(stores, keys, values)
        if change is not None:
            return Difference(
                level="starts-after",
                rule=rule,
                place=place,
                message=message,
                old=was,
                new=now,
                changes=(change,),
                hint=NEW_COLUMNS if values.add else None,
            )
        reason = "evolve cannot make the one of the other"
    hint = EXPORT
    if (keys if part == "key" else values).reordered:
        hint = "write the columns in the old order, and the new ones after them"
    return Difference("never", rule, place, f"{message}; {reason}", was, now, hint=hint)


_JOINS_OWN = "matched"  # the last column of a join's rows, which some kinds of join keep


def _unfit(change: ColumnChange, part: str) -> str | None:
    if _JOINS_OWN in change.drop or any(column["name"] == _JOINS_OWN for column in change.add):
        return "another kind of join keeps other rows"
    if change.reordered:
        return f"its columns are in another order: {', '.join(change.reordered)}"
    if change.replaced:
        shown = [f"{one} by {other}" for one, other in change.replaced]
        return f"columns were replaced: {'; '.join(shown)}"
    if part == "key" and (change.add or change.drop):
        return "with a column more or less it is another key"
    return None


def _unfit_value(operator: Operator, change: ColumnChange) -> str | None:
    reason = _unfit(change, "value")
    is_aggregation = KINDS.get(operator.name or "") == "aggregation"
    if reason is not None or not is_aggregation or not change.add:
        return reason
    added = {column["name"] for column in change.add}
    functions = operator.functions
    columns = [field.name for field in fields_of(operator.stores["default"].value)]
    sizes = [BUFFERS.get(name, 1) for name in functions]
    if sum(sizes) != len(columns):
        return None if len(added) == len(functions) else "its aggregates keep several columns each"
    start = 0
    for name, size in zip(functions, sizes, strict=True):
        own = columns[start : start + size]
        if 0 < len(added.intersection(own)) < size:
            return f"{name} would take a part of another aggregate's columns for its own"
        start += size
    return None


def _evolve(stores: Stores, keys: ColumnChange, values: ColumnChange) -> Evolve | None:
    """Return the change that makes the old rows new ones; None if there is none."""
    nullable_value = tuple(values.nullable)
    added = []
    for column in values.add:
        added.append({**column, "default": BEGINS_WITH.get(column["name"])})
    change = Evolve(
        operator=stores.operator.id,
        store=stores.store,
        add=tuple(added),
        widen=values.widen,
        drop=tuple(values.drop),
        nullable=nullable_value,
        widen_key=keys.widen,
        nullable_key=tuple(keys.nullable),
    )
    schema = {"key": stores.old.key, "value": stores.old.value, "lists": False}
    try:
        evolution = evolution_of(change, schema, ",")
    except Unfit:
        return None
    fits = takes(fields_of(stores.new.key), fields_of(evolution.new_key))
    fits = fits and takes(fields_of(stores.new.value), fields_of(evolution.new_value))
    return change if fits else None


def _exchanged_sides(old: Operator, new: Operator) -> Difference | None:
    """Return the difference of a join whose left side holds the right one's rows."""
    rows = "-keyWithIndexToValue"
    named = sorted(store for store in old.stores.keys() & new.stores.keys() if store.endswith(rows))
    if len(named) != 2:
        return None
    left, right = named
    old_left, old_right = _names_of(old.stores[left]), _names_of(old.stores[right])
    new_left, new_right = _names_of(new.stores[left]), _names_of(new.stores[right])
    if (old_left, old_right) != (new_right, new_left) or old_left == old_right:
        return None
    fits = all(
        takes(fields_of(new.stores[side].value), fields_of(old.stores[side].value))
        for side in (left, right)
    )
    message = "the two sides of the join were exchanged"
    level: Level = "starts-but" if fits else "never"
    message += ": Spark reads the left one's rows as the right one's" if fits else ""
    return Difference(
        level,
        "join-sides",
        f"operator {new.id}",
        message,
        ", ".join(old_left),
        ", ".join(new_left),
        hint="join them in the old order",
    )


def _names_of(schema: StoreSchema) -> list[str]:
    return [field.name for field in fields_of(schema.value)]


# ---- settings ----------------------------------------------------------------------------------


def settings(pair: Pair) -> Iterator[Difference]:
    """Yield settings that the code sets in vain, with the command that changes the state."""
    for key, value in pair.new.settings.items():
        pinned = pair.stored.settings.get(key)
        if pinned is None or value is None or pinned.lower() == value.lower():
            continue
        changes: tuple[Change, ...] = ()
        if key == PARTITIONS and value.isdigit():
            changes = (Repartition(int(value)),)
        elif key == PROVIDER and value.rpartition(".")[2] in _PROVIDERS:
            changes = (Convert(provider=_PROVIDERS[value.rpartition(".")[2]]),)
        elif key == offset_conf.CODEC:
            changes = (Convert(codec=value),)
        own, kept = (text.rpartition(".")[2] for text in (value, pinned))
        message = f"{key} is {own} in vain: the checkpoint says {kept}"
        yield Difference("note", "settings", "settings", message, pinned, value, changes)


_PROVIDERS = {
    "HDFSBackedStateStoreProvider": "hdfs",
    "RocksDBStateStoreProvider": "rocksdb",
}


# ---- code, refusal -------------------------------------------------------------------------------


def code(pair: Pair) -> Iterator[Difference]:
    """Yield the lines of the old code's plan that compute something else; without it, a note."""
    for _, new in pair.shared:
        if new.name in WITH_FUNCTIONS:
            place = f"operator {new.id}"
            message = "its function is not compared: no plan tells what a function does"
            yield Difference("note", "function", place, message)
    if pair.before is None:
        if any(new.code for _, new in pair.shared):
            yield Difference(
                "note",
                "expressions",
                "query",
                "the checkpoint does not tell the expressions that its state was computed by",
                hint="name the old code, and they are compared: --before OLD.py",
            )
        return
    for stored, new in pair.shared:
        old = pair.before_of(new)
        if old is None or not old.code:
            continue
        for line in changed_lines(old.code, new.code):
            is_harmless = line.rule == "filter"
            if line.rule == "output-mode":
                is_harmless = "complete" not in (pair.before.mode, pair.new.mode)
            # Another schema says more: Spark refuses the state.
            level: Level = "note" if is_harmless or not _fits(stored, new) else "starts-but"
            message = _CHANGED.get(line.rule, "an expression is another one")
            yield Difference(level, line.rule, f"operator {new.id}", message, line.old, line.new)


_CHANGED = {
    "aggregate": "an aggregate is another one, and continues from what the old one kept",
    "join": "the join is another one: rows in its state were kept for the old one",
    "filter": "other rows come in from now on",
    "output-mode": "the output mode is another one",
}


def refusal(pair: Pair) -> Iterator[Difference]:
    """Yield the error by which Spark's own planner refuses the checkpoint."""
    refused = pair.new.refused
    if refused is not None:
        message = f"Spark refuses the checkpoint: [{refused.error_class}] {refused.message}"
        yield Difference("never", "refused", "query", message, hint=EXPORT)


RULES: tuple[Callable[[Pair], Iterator[Difference]], ...] = (
    query,
    operators,
    schemas,
    windows,
    watermarks,
    sources,
    sinks,
    settings,
    code,
)
