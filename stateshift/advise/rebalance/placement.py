"""The best places of jobs: the least load of the fullest cluster, then of the next, and so on; then
the fewest bytes moved, then the least downtime.

A cluster within the band that is aimed for is even enough: nothing is moved to even it out further.
A few jobs are spread in the best way there is. If there are many, one after the other leaves the
fullest cluster; the bound says how much better any spread could be at most.

Measurements differ a little from run to run. Figures are compared as coarsely as they are measured,
and the first in the order of the jobs is the best of spreads that are alike by those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stateshift.advise.rebalance.limits import Movable, has_room
from stateshift.advise.rebalance.situation import Cluster, Policy, mean_of

# Spreads that are looked at before the best one so far has to do.
LOOKED_AT_MAX = 100_000


class Cost(NamedTuple):
    """The numbers that are least in the best spread; the first counts most."""

    left_behind: int  # units on clusters that are to be emptied
    # each cluster's load, the fullest first, in whole percents; no less than the band's edge
    levels: tuple[float, ...]
    mebibytes: int
    downtime_seconds: int
    moves: int
    moved: tuple[int, ...]  # which units, by their places in the list: of two alike, the first


@dataclass(frozen=True, slots=True)
class Placement:
    """The cluster of each unit, by its place in the list; no fullest one is below `bound`."""

    places: tuple[str, ...]
    cost: Cost
    bound: float
    is_best: bool


@dataclass(frozen=True)
class Ground:
    """The ground to judge a spread on: `fixed` is the load that no spread changes."""

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
    # A cluster below this load is even enough.
    aim = min(policy.aim * mean_of(clusters, loads), policy.load_max)
    ground = Ground({one.name: one for one in clusters}, movable, fixed, aim, policy)
    here = tuple(one.unit.cluster for one in movable)
    as_it_is = Placement(here, _judge(ground, here), 0.0, is_best=False)
    found = min(as_it_is, _greedy(ground, loads), key=lambda one: one.cost)
    if len(movable) <= policy.exact_units:
        search = _Search(ground, found)
        is_whole = search.all()
        found = Placement(tuple(search.places), search.cost, 0.0, is_whole)
    open_clusters = ground.open_clusters
    if not open_clusters:
        bound = 0.0
    else:
        bounds = [mean_of(open_clusters, loads)]
        bounds += [ground.fixed[one.name] / one.capacity for one in open_clusters]
        for one in ground.units:
            names = {one.unit.cluster, *one.targets}
            possible = [cluster for cluster in open_clusters if cluster.name in names]
            ways = [(ground.fixed[c.name] + one.unit.load) / c.capacity for c in possible]
            if ways:
                bounds.append(min(ways))
        bound = max(bounds)
    # At the bound, nothing can be better by its level, if nothing was moved for it.
    fullest = max(found.cost.levels, default=0.0)
    is_at_bound = found.cost.moves == 0 and fullest <= _level(max(bound, ground.aim))
    is_best = found.is_best or is_at_bound
    places = iter(found.places)
    everywhere = tuple(next(places) if one.targets else one.unit.cluster for one in units)
    return replace(found, places=everywhere, bound=bound, is_best=is_best)


def _judge(ground: Ground, places: Sequence[str]) -> Cost:
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


# --------------------------------------------------------------------------- one after the other


def _greedy(ground: Ground, loads: Mapping[str, float]) -> Placement:
    """Let units leave the fullest cluster, one after the other, until it is even enough."""
    places = [one.unit.cluster for one in ground.units]
    held = dict(loads)
    # Everything leaves the clusters that are to be emptied, the largest first.
    draining = {name for name, cluster in ground.clusters.items() if cluster.is_draining}
    leaving = [n for n, one in enumerate(ground.units) if one.unit.cluster in draining]
    for number in sorted(leaving, key=lambda number: -_share(ground, number)):
        target = _emptiest(ground, ground.units[number], held, None)
        if target is not None:
            _shift(ground, number, target, places, held)
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
    return Placement(tuple(places), _judge(ground, places), 0.0, is_best=False)


def _fullest(ground: Ground, held: Mapping[str, float], stuck: set[str]) -> Cluster | None:
    """Return the fullest cluster above the aim, of those that can still give."""
    fill = {one: _level(held[one.name] / one.capacity) for one in ground.open_clusters}
    giving = [one for one in fill if one.name not in stuck]
    over = [one for one in giving if fill[one] > _level(ground.aim)]
    return max(over, key=lambda one: fill[one], default=None)


def _step_from(
    ground: Ground, cluster: Cluster, staying: Sequence[int], held: Mapping[str, float]
) -> tuple[int, str] | None:
    """Return the unit that shall leave a cluster, of those that have stayed there, and its target:
    the pair that relieves it most for a byte.

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


def _emptiest(
    ground: Ground, one: Movable, held: Mapping[str, float], below: float | None
) -> str | None:
    """Return the target that is emptiest once it has a unit, if it is then below a load."""
    ways = []
    load = one.unit.load
    for name in one.targets:
        after = _ratio(ground, name, held, load)
        room = has_room(ground.clusters[name], held[name] + load, ground.policy)
        if room and (below is None or _level(after) < _level(below)):
            ways.append((_level(after), name))
    return min(ways)[1] if ways else None


def _share(ground: Ground, number: int) -> float:
    """Return the share of its cluster that a unit takes, in whole percents."""
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


class _Search:
    """All spreads, the largest units first; one that cannot become better is not gone into. The
    best is that of all, or of those within as many looks.
    """

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
            cost = _judge(self.ground, here)
            if cost < self.cost:
                self.places, self.cost = list(here), cost
            return
        number = self.order[depth]
        unit = self.ground.units[number].unit
        # where it is, and where there is room for it
        for name in (unit.cluster, *self.ground.units[number].targets):
            cluster = self.ground.clusters[name]
            has_place = has_room(cluster, held[name] + unit.load, self.ground.policy)
            if name != unit.cluster and not has_place:
                continue
            held[name] += unit.load
            here[number] = name
            more = 0 if name == unit.cluster else _mebibytes(self.ground.units[number])
            self._look(depth + 1, here, held, moved + more)
            held[name] -= unit.load
        here[number] = unit.cluster

    def _is_hopeless(
        self, depth: int, here: Sequence[str], held: Mapping[str, float], moved: int
    ) -> bool:
        """Whether whatever follows is no better than the best so far."""
        clusters, units, placed = self.ground.clusters, self.ground.units, self.order[:depth]
        # Clusters that get something need room for all that they have by then: a unit that stays
        # there may be placed later than one that comes.
        getting = {here[number] for number in placed if here[number] != units[number].unit.cluster}
        policy = self.ground.policy
        if not all(has_room(clusters[name], held[name], policy) for name in getting):
            return True
        behind = sum(clusters[here[number]].is_draining for number in self.order[:depth])
        if behind != self.cost.left_behind:
            return behind > self.cost.left_behind
        levels = _levels(self.ground, held)
        if levels != self.cost.levels:
            return levels > self.cost.levels
        return moved > self.cost.mebibytes
