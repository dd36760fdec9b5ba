"""A run of `rebalance` as a page that can be sent around. Values in, text out.

    head        what was decided, and the numbers that everybody asks for
    clusters    each one's load before and after: two bars, and a line where the mean is
    moves       bytes, downtime, gain over cost, how far each has come
    stay        each other job, and why

A bar's whole width is a cluster's capacity, or the highest load if that is more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from stateshift import __version__
from stateshift.cli.views.page import (
    bullets,
    chip,
    escape,
    percent,
    table,
    table_of_pictures,
    tag,
    tile,
    whole_page,
)
from stateshift.cli.views.rebalance_text import (
    EARLIER_HEADS,
    MOVE_HEADS,
    claim_of_quality,
    closed_clusters,
    contents,
    earlier_row,
    headline,
    mean_share,
    move_row,
    percentage,
    shares_after,
    shares_before,
    whys,
)
from stateshift.cli.views.units import many, size
from stateshift.documents.rebalance import moves_of, share
from stateshift.terms import moment

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import Decision, Loaded
    from stateshift.advise.rebalance.outcome import Rebalance

CLUSTER_HEADS: Final = ("cluster", ">capacity", ">before", ">after")
STAY_HEADS: Final = ("job", "cluster", "why it stays")
BAR, APART = 14, 3


def page(rebalance: Rebalance) -> str:
    """Return the page of a run."""
    decision = rebalance.decision
    parts = [*_head(rebalance)]
    held = list(chain.from_iterable(map(contents, rebalance.drained)))
    held += closed_clusters(rebalance)
    if held:
        parts += [tag("h2", "Drained and cordoned"), bullets(held)]
    if rebalance.unfinished:
        rows = [earlier_row(each) for each in rebalance.unfinished]
        parts += [tag("h2", "Moves of earlier runs"), table(EARLIER_HEADS, rows)]
        parts.append(bullets([each.fact for each in rebalance.unfinished if each.fact]))
    if decision is not None:
        parts += [*_clusters(decision), *_moves(rebalance)]
        if decision.stays:
            stays = [(each.job, each.cluster, each.reason) for each in decision.stays]
            parts += [tag("h2", "Jobs that stay"), table(STAY_HEADS, stays, "its --json")]
    if rebalance.notes:
        parts += [tag("h2", "Notes"), bullets(rebalance.notes)]
    words = [f"Written by stateshift {__version__}."]
    if decision is not None:
        words.insert(0, f"Decided at {moment(decision.at)}.")
    if rebalance.file is not None:
        words.append(f"With --replay {rebalance.file} it is decided again.")
    foot = tag("footer", tag("p", escape(" ".join(words))))
    return whole_page("rebalance", *parts, foot)


def _head(rebalance: Rebalance) -> Iterator[str]:
    words, tone = headline(rebalance)
    yield tag("p", "stateshift rebalance", class_="dim")
    yield tag("h1", escape(words), chip(_word(rebalance), tone))
    decision = rebalance.decision
    if decision is not None:
        yield tag("p", escape(decision.reason))
        yield tag("dl", *_tiles(rebalance, decision), class_="tiles")


def _word(rebalance: Rebalance) -> str:
    """Return the state of the run in a word."""
    if rebalance.busy:
        return "busy"
    moves = moves_of(rebalance)
    if any(each.state in ("failed", "unfinished") for each in moves) or rebalance.decision is None:
        return "stopped"
    if any(each.state == "planned" for each in moves):
        return "dry run"
    return "done" if moves else "at rest"


def _tiles(rebalance: Rebalance, decision: Decision) -> Iterator[str]:
    before, after = shares_before(decision), shares_after(decision)
    if before:
        mean = mean_share(decision)
        yield tile(
            "Fullest cluster",
            f"{max(before):.0%} → {max(after):.0%}",
            *([] if mean is None else [f"the mean is {mean:.0%}"]),
            claim_of_quality(decision),
        )
    moves = moves_of(rebalance)
    carried = size(sum(each.move.bytes for each in moves))
    yield tile("Moves", str(len(moves)), *([f"{carried} of state"] if moves else []))
    yield tile("Stay", many(len(decision.stays), "job"))


def _clusters(decision: Decision) -> Iterator[str]:
    whole = max([1.0, *shares_before(decision), *shares_after(decision)])
    mean = mean_share(decision)
    yield tag("h2", "Clusters")
    pictures = [_bars(each, whole, mean) for each in decision.clusters]
    rows = [
        (
            each.name,
            "cannot tell" if each.capacity is None else f"{each.capacity:g}",
            percentage(each.before, each),
            percentage(each.after, each),
        )
        for each in decision.clusters
    ]
    yield table_of_pictures(CLUSTER_HEADS, rows, "before above, after below", pictures)
    if mean is not None:
        yield tag("p", f"The dashed line is the mean, {mean:.0%}.", class_="dim")


def _bars(cluster: Loaded, whole: float, mean: float | None) -> str:
    """Draw a cluster's load, before above after."""
    before, after = share(cluster.before, cluster), share(cluster.after, cluster)
    if before is None or after is None:
        return ""
    height = 2 * BAR + APART
    parts = [
        _bar(before, whole, 1, "bar even", "before"),
        _bar(after, whole, 1 + BAR + APART, "bar", "after"),
    ]
    if mean is not None:
        at = percent(100 * mean / whole)
        parts.append(tag("line", x1=at, x2=at, y1=0, y2=height + 2, class_="mark"))
    label = f"{cluster.name}: {before:.0%} before, {after:.0%} after"
    return tag("svg", *parts, class_="strip", height=height + 2, role="img", aria_label=label)


def _bar(part: float, whole: float, y: float, kind: str, when: str) -> str:
    title = tag("title", f"{when}: {part:.0%}")
    width = percent(100 * part / whole)
    return tag("rect", title, x="0%", y=y, width=width, height=BAR, class_=kind)


def _moves(rebalance: Rebalance) -> Iterator[str]:
    moves = moves_of(rebalance)
    if not moves:
        return
    yield tag("h2", "Moves")
    yield table(MOVE_HEADS, [move_row(each) for each in moves], "its --json")
    lines: list[str] = []
    for each in moves:
        lines.extend(whys(each))
    yield bullets(lines, "its --json")
