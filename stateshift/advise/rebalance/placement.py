"""Where jobs would best be: the least load of the fullest cluster, then of the next, and so on;
then the fewest bytes moved, then the least downtime.

A cluster within the band that is aimed for is even enough: nothing is moved to even it out further.
A few jobs are spread in the best way there is. Of many, one after the other leaves the fullest
cluster; the bound says how much better any spread could be at most.

What was measured differs a little from run to run. So figures are compared as coarsely as they are
measured, and of spreads that are alike by those the first in the order of the jobs is the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stateshift.advise.rebalance.limits import Movable, has_room
from stateshift.advise.rebalance.policy import Policy
from stateshift.advise.rebalance.situation import Cluster, mean_of

# Spreads that are looked at before the best one so far has to do.
LOOKED_AT_MAX = 100_000


class Cost(NamedTuple):
    """What is least in the best spread; the first number counts most."""

    left_behind: int  # units on clusters that are to be emptied
    # each cluster's load, the fullest first, in whole percents; no less than the band's edge
    levels: tuple[float, ...]
    mebibytes: int
    downtime_seconds: int
    moves: int
    moved: tuple[int, ...]  # which units, by their places in the list: of two alike, the first


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each unit goes, by its place in the list; where it is, if it stays.

    `bound` is a load of the fullest cluster that no spread is below, as a part of its capacity.
    """

    places: tuple[str, ...]
    cost: Cost
    bound: float
    is_best: bool


@dataclass(frozen=True)
class Ground:
    """What a spread is judged by: `fixed` is what no spread changes of each cluster's load."""

    clusters: Mapping[str, Cluster]
    units: tuple[Movable, ...]
    fixed: Mapping[str, float]
    aim: float
    policy: Policy

    @property
    def open_clusters(self) -> tuple[Cluster, ...]:
        """The clusters that are not to be emptied."""
        return tuple(one for one in self.clusters.values() if not one.is_draining)


def place(
    clusters: Sequence[Cluster],
    units: Sequence[Movable],
    loads: Mapping[str, float],
    policy: Policy,
) -> Placement:
    """Return the best spread that is found."""
    fixed = dict(loads)
    for one in units:
        if one.targets:
            fixed[one.unit.cluster] -= one.unit.load
    movable = tuple(one for one in units if one.targets)
    ground = Ground(
        {one.name: one for one in clusters}, movable, fixed, _aim(clusters, loads, policy), policy
    )
    found = min(_as_it_is(ground), _greedy(ground, loads), key=lambda one: one.cost)
    if len(movable) <= policy.exact_units:
        found = _best(ground, found)
    bound = _bound(ground, loads)
    is_best = found.is_best or _is_at_bound(ground, found, bound)
    places = iter(found.places)
    everywhere = tuple(next(places) if one.targets else one.unit.cluster for one in units)
    return replace(found, places=everywhere, bound=bound, is_best=is_best)


def _aim(clusters: Sequence[Cluster], loads: Mapping[str, float], policy: Policy) -> float:
    """Return the load below which a cluster is even enough."""
    return min(policy.aim * mean_of(clusters, loads), policy.load_max)


def _bound(ground: Ground, loads: Mapping[str, float]) -> float:
    """Return what the fullest cluster holds at least: what cannot move, the mean, and each unit
    where it is the smallest part.
    """
    open_clusters = ground.open_clusters
    if not open_clusters:
        return 0.0
    bounds = [mean_of(open_clusters, loads)]
    bounds += [ground.fixed[one.name] / one.capacity for one in open_clusters]
    for one in ground.units:
        names = {one.unit.cluster, *one.targets}
        ways = [
            (ground.fixed[cluster.name] + one.unit.load) / cluster.capacity
            for cluster in open_clusters
            if cluster.name in names
        ]
        if ways:
            bounds.append(min(ways))
    return max(bounds)


def _is_at_bound(ground: Ground, found: Placement, bound: float) -> bool:
    """Whether nothing can be better by its level, and nothing was moved for it."""
    cost = found.cost
    return cost.moves == 0 and max(cost.levels, default=0.0) <= _level(max(bound, ground.aim))


def _judged(ground: Ground, places: Sequence[str]) -> Cost:
    held = dict(ground.fixed)
    mebibytes, downtime, left_behind = 0, 0.0, 0
    moved = []
    for number, (one, place_) in enumerate(zip(ground.units, places, strict=True)):
        held[place_] += one.unit.load
        left_behind += ground.clusters[place_].is_draining
        if place_ != one.unit.cluster:
            mebibytes += _mebibytes(one)
            downtime += one.unit.downtime_seconds
            moved.append(number)
    levels = _levels(ground, held)
    return Cost(left_behind, levels, mebibytes, round(downtime), len(moved), tuple(moved))


def _mebibytes(one: Movable) -> int:
    return round(one.unit.bytes / (1 << 20))


def _levels(ground: Ground, held: Mapping[str, float]) -> tuple[float, ...]:
    ratios = [held[one.name] / one.capacity for one in ground.open_clusters]
    return tuple(sorted((_level(max(ratio, ground.aim)) for ratio in ratios), reverse=True))


def _level(ratio: float) -> float:
    """Return a load in whole percents."""
    return round(ratio, 2)


def _as_it_is(ground: Ground) -> Placement:
    places = tuple(one.unit.cluster for one in ground.units)
    return Placement(places, _judged(ground, places), 0.0, is_best=False)


# --------------------------------------------------------------------------- one after the other


def _greedy(ground: Ground, loads: Mapping[str, float]) -> Placement:
    """Let units leave the fullest cluster, one after the other, until it is even enough."""
    places = [one.unit.cluster for one in ground.units]
    held = dict(loads)
    _empty_out(ground, places, held)
    staying: dict[str, list[int]] = {name: [] for name in ground.clusters}
    for number, one in enumerate(ground.units):
        if places[number] == one.unit.cluster and one.unit.load > 0:
            staying[one.unit.cluster].append(number)
    stuck: set[str] = set()
    while (fullest := _fullest(ground, held, stuck)) is not None:
        step = _step_from(ground, fullest, staying[fullest.name], held)
        if step is None:
            stuck.add(fullest.name)
            continue
        number, target = step
        staying[fullest.name].remove(number)
        _shift(ground, number, target, places, held)
    return Placement(tuple(places), _judged(ground, places), 0.0, is_best=False)


def _empty_out(ground: Ground, places: list[str], held: dict[str, float]) -> None:
    """Let everything leave the clusters that are to be emptied, the largest first."""
    leaving = [
        number
        for number, one in enumerate(ground.units)
        if ground.clusters[one.unit.cluster].is_draining
    ]
    for number in sorted(leaving, key=lambda number: -_share(ground, number)):
        one = ground.units[number]
        ways = [
            (_level(_ratio(ground, name, held, one.unit.load)), name)
            for name in one.targets
            if has_room(ground.clusters[name], held[name] + one.unit.load, ground.policy)
        ]
        if ways:
            _shift(ground, number, min(ways)[1], places, held)


def _fullest(ground: Ground, held: Mapping[str, float], stuck: set[str]) -> Cluster | None:
    """Return the fullest cluster above what is aimed for, of those that can still give."""
    fill = {one: _level(held[one.name] / one.capacity) for one in ground.open_clusters}
    giving = [one for one in fill if one.name not in stuck]
    over = [one for one in giving if fill[one] > _level(ground.aim)]
    return max(over, key=lambda one: fill[one], default=None)


def _step_from(
    ground: Ground, cluster: Cluster, staying: Sequence[int], held: Mapping[str, float]
) -> tuple[int, str] | None:
    """Return the unit that shall leave a cluster, of those that have stayed there, and where to:
    what relieves it most for a byte.

    No target becomes as full as the cluster is.
    """
    now = held[cluster.name] / cluster.capacity
    excess = _level(now - ground.aim)
    best: tuple[float, float, int, str] | None = None
    for number in staying:
        one = ground.units[number]
        target = _emptiest(ground, one, held, now)
        if target is None:
            continue
        relief = min(_share(ground, number), excess) / (_mebibytes(one) + 1)
        after = _level(_ratio(ground, target, held, one.unit.load))
        candidate = (-relief, after, number, target)
        if best is None or candidate < best:
            best = candidate
    return None if best is None else best[2:]


def _emptiest(ground: Ground, one: Movable, held: Mapping[str, float], below: float) -> str | None:
    """Return the target that is emptiest once it has a unit, if that is better than now."""
    ways = []
    load = one.unit.load
    for name in one.targets:
        after = _ratio(ground, name, held, load)
        room = has_room(ground.clusters[name], held[name] + load, ground.policy)
        if room and _level(after) < _level(below):
            ways.append((_level(after), name))
    return min(ways)[1] if ways else None


def _share(ground: Ground, number: int) -> float:
    """Return how much of its cluster a unit takes, in whole percents."""
    unit = ground.units[number].unit
    return _level(unit.load / ground.clusters[unit.cluster].capacity)


def _ratio(ground: Ground, name: str, held: Mapping[str, float], more: float) -> float:
    return (held[name] + more) / ground.clusters[name].capacity


def _shift(
    ground: Ground, number: int, target: str, places: list[str], held: dict[str, float]
) -> None:
    load = ground.units[number].unit.load
    held[places[number]] -= load
    held[target] += load
    places[number] = target


# ------------------------------------------------------------------------------------ the best


def _best(ground: Ground, found: Placement) -> Placement:
    """Return the best spread of all, or the best that was found within so many looks."""
    search = _Search(ground, found)
    is_best = search.all()
    return Placement(tuple(search.places), search.cost, 0.0, is_best)


class _Search:
    """All spreads, the largest units first; what cannot become better is not gone into."""

    def __init__(self, ground: Ground, found: Placement) -> None:
        self.ground = ground
        self.places = list(found.places)
        self.cost = found.cost
        self.order = sorted(
            range(len(ground.units)), key=lambda number: -ground.units[number].unit.load
        )
        self.looks = 0

    def all(self) -> bool:
        """Look at all; return whether that was possible."""
        here = [one.unit.cluster for one in self.ground.units]
        self._look(0, here, dict(self.ground.fixed), 0)
        return self.looks < LOOKED_AT_MAX

    def _look(self, depth: int, here: list[str], held: dict[str, float], moved: int) -> None:
        self.looks += 1
        if self.looks >= LOOKED_AT_MAX or self._is_hopeless(depth, here, held, moved):
            return
        if depth == len(self.order):
            cost = _judged(self.ground, here)
            if cost < self.cost:
                self.places, self.cost = list(here), cost
            return
        number = self.order[depth]
        unit = self.ground.units[number].unit
        for name in self._ways(number, held):
            held[name] += unit.load
            here[number] = name
            more = 0 if name == unit.cluster else _mebibytes(self.ground.units[number])
            self._look(depth + 1, here, held, moved + more)
            held[name] -= unit.load
        here[number] = unit.cluster

    def _ways(self, number: int, held: Mapping[str, float]) -> Iterator[str]:
        """Yield where a unit may be: where it is, and where there is room for it."""
        one = self.ground.units[number]
        yield one.unit.cluster
        for name in one.targets:
            if has_room(self.ground.clusters[name], held[name] + one.unit.load, self.ground.policy):
                yield name

    def _is_hopeless(
        self, depth: int, here: Sequence[str], held: Mapping[str, float], moved: int
    ) -> bool:
        """Whether whatever follows is no better than the best so far."""
        clusters = self.ground.clusters
        if not self._have_room(here, held, self.order[:depth]):
            return True
        behind = sum(clusters[here[number]].is_draining for number in self.order[:depth])
        if behind != self.cost.left_behind:
            return behind > self.cost.left_behind
        levels = _levels(self.ground, held)
        if levels != self.cost.levels:
            return levels > self.cost.levels
        return moved > self.cost.mebibytes

    def _have_room(
        self, here: Sequence[str], held: Mapping[str, float], placed: Sequence[int]
    ) -> bool:
        """Whether clusters that get something have room for all that they have by then: what stays
        there may be placed later than what comes.
        """
        units, ground = self.ground.units, self.ground
        getting = {here[number] for number in placed if here[number] != units[number].unit.cluster}
        return all(has_room(ground.clusters[name], held[name], ground.policy) for name in getting)
