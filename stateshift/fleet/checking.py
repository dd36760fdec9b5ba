"""`verify --deep` by a fleet: an image in portions. A portion that is one large shard is read in
parts, apart from the rest of it.

    deep  every portion, or the parts of its shard and the rest  ──▶ findings, tallies

If one of several finds anything, its portion is read once more as one: the findings are those of a
single process then. The stores of a join stay together, since they are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from stateshift.engines.views import Tallies
from stateshift.fleet.cutting import Cutter, Settings, ShardAt
from stateshift.fleet.orders import Json, Order
from stateshift.plain import from_plain, to_plain
from stateshift.survey import Finding, Image, Survey, sizes_of

JOIN = "symmetricHashJoin"

_MODULUS = 1 << 64

Portion = tuple[Survey, Image]


def deep(cutter: Cutter, there: Sequence[Portion], tallies: Tallies | None) -> tuple[Finding, ...]:
    """Return the findings on an image beyond those of its survey, each once."""
    settings, is_tallied = _settings_of_parts(cutter, there), tallies is not None
    orders: list[Order] = []
    for portion, own in zip(there, settings, strict=True):
        if len(own) == 1:
            orders.append(_order(portion, own[0], "all", is_tallied))
        else:
            orders.append(_order(portion, portion[1].settings, "rest", is_tallied))
            orders += [_order(portion, part, "state", is_tallied) for part in own]
    # All of them: answers that nobody takes would end the fleet.
    answers = iter(list(cutter.spread("deep", orders)))
    findings: dict[Finding, None] = {}
    for portion, own in zip(there, settings, strict=True):
        answer = next(answers)
        if len(own) > 1:
            answer = _together([answer, *islice(answers, len(own))])
            if any(finding.level != "note" for finding in _findings(answer)):
                again = _order(portion, portion[1].settings, "all", is_tallied)
                (answer,) = cutter.spread("deep", [again])
        findings |= dict.fromkeys(_findings(answer))
        if tallies is not None:
            tallies |= {tuple(place): tuple(tally) for place, tally in answer["tallies"]}
    return tuple(findings)


def _findings(answer: Json) -> Iterator[Finding]:
    return (from_plain(Finding, finding) for finding in answer["findings"])


def _together(answers: Sequence[Json]) -> Json:
    """Return the answers for the parts of one shard as one."""
    findings: list[Json] = []
    sums: dict[tuple[str, int, str], tuple[int, int]] = {}
    for answer in answers:
        findings += answer["findings"]
        for place, (records, total) in answer["tallies"]:
            before = sums.get(tuple(place), (0, 0))
            sums[tuple(place)] = before[0] + records, (before[1] + total) % _MODULUS
    return {"findings": findings, "tallies": list(sums.items())}


def _settings_of_parts(cutter: Cutter, there: Sequence[Portion]) -> list[list[Settings]]:
    """Return for each portion the settings of its parts, its own where it stays whole."""
    sizes = [sum(sizes_of(survey, image.needed)) for survey, image in there]
    at = [_is_divisible(image) for _, image in there]
    shards = []
    for (survey, image), size, is_divisible in zip(there, sizes, at, strict=True):
        if is_divisible:
            shards.append(ShardAt(survey.location, image.shards[0], image.settings, size))
    of_shards = iter(cutter.settings_of_parts(shards, cutter.bytes_of_part(sizes)))
    whole = [[image.settings] for _, image in there]
    return [next(of_shards) if each else own for each, own in zip(at, whole, strict=True)]


def _is_divisible(image: Image) -> bool:
    """Whether the image of a portion is that of one shard, which may be read in parts."""
    if len(image.shards) != 1:
        return False
    (shard,) = image.shards
    names = {operator.id: operator.name for operator in image.operators}
    return names.get(shard.operator) != JOIN


def _order(portion: Portion, settings: Mapping[str, str], reads: str, tally: bool) -> Order:
    survey, image = portion
    own = replace(image, settings=settings)
    return {"survey": to_plain(survey), "image": to_plain(own), "reads": reads, "tally": tally}
