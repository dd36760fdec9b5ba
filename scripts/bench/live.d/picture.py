"""The picture: latency over time with the moves drawn in, its CCDF and histogram, and the sweeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curves import COLOURS
from latency import BARS, SHARES
from page import ALL_AT_ONCE, FLUID, by_strategy, of_bins
from pages import drawing

Figures = Mapping[str, Any]
Every = Sequence[Figures]
DRAWN = (("objects", "driver", 1_200_000), ("objects", "driver", 600_000))


def pictured(every: Every, place: Path) -> None:
    pyplot = drawing()
    if pyplot is None:
        return
    figure, panels = pyplot.subplots(2, 3, figsize=(18, 10))
    drawn: list[tuple[Callable[[Any, Every], None], Every]] = [
        (timeline_panel, of_setup(every, DRAWN[0])),
        (timeline_panel, of_setup(every, DRAWN[1])),
        (ccdf_panel, of_setup(every, DRAWN[0])),
        (histogram_panel, of_setup(every, DRAWN[0])),
        (load_panel, [one for one in every if one["part"] == "load"]),
        (bins_panel, [one for one in every if one["part"] == "bins"]),
    ]
    for panel, (draw, found) in zip(panels.flat, drawn, strict=True):
        if found:
            draw(panel, found)
            panel.legend()
        else:
            panel.set(title="not measured yet")
    figure.tight_layout()
    figure.savefig(place, dpi=80)


def of_setup(every: Every, setup: tuple[str, str, int]) -> Every:
    """Return the first round of each strategy."""
    first: dict[str, Figures] = {}
    for one in every:
        if one["part"] == "strategies" and (one["form"], one["home"], one["keys"]) == setup:
            first.setdefault(one["strategy"], one)
    return list(first.values())


def timeline_panel(panel: Any, found: Every) -> None:
    """The worst latency of each 250 ms, and where each move has ended."""
    for one, colour in zip(found, COLOURS, strict=False):
        points = one["timeline"]
        across, up = [at for at, _ in points], [worst for _, worst in points]
        panel.plot(across, up, color=colour, linewidth=1.4, label=one["strategy"])
        panel.axvline(one["moved_in"], color=colour, linestyle=":", linewidth=1)
    panel.axvline(0, color="black", linewidth=1)
    panel.set(title=f"{found[0]['keys']:,} keys, all bins move (dotted: the move is over)")
    panel.set(xlabel="when a record was due, from the request on, s", yscale="log")
    panel.set(ylabel="worst latency of 250 ms, s")


def ccdf_panel(panel: Any, found: Every) -> None:
    for one, colour in zip(found, COLOURS, strict=False):
        panel.step(
            one["during"]["ccdf"][:-1],
            SHARES[:-1],
            where="post",
            color=colour,
            label=one["strategy"],
        )
    panel.set(title="1,200,000 keys, records due during the move", xscale="log", yscale="log")
    panel.set(xlabel="latency, s", ylabel="share of the records that were later")


def histogram_panel(panel: Any, found: Every) -> None:
    for one, colour in zip(found, COLOURS, strict=False):
        total = max(1, one["during"]["rows"])
        shares = [count / total for count in one["during"]["histogram"]]
        panel.stairs(shares, BARS, color=colour, label=one["strategy"], linewidth=1.4)
    panel.set(title="the same as a histogram", xscale="log")
    panel.set(xlabel="latency, s", ylabel="share of the records")


def load_panel(panel: Any, every: Every) -> None:
    held = [one for one in every if not one.get("saturated")]
    for name, colour in zip(("steady", ALL_AT_ONCE, FLUID), COLOURS, strict=False):
        found = []
        for rate in sorted({one["rate"] for one in held if one["strategy"] == name}):
            found.append(by_strategy([one for one in held if one["rate"] == rate])[name])
        for what, style in (("max", "-"), ("p99", "--")):
            panel.plot(
                [one["rate"] for one in found],
                [one["during"][what] for one in found],
                color=colour,
                linestyle=style,
                marker="o",
                label=f"{name}, {what}",
            )
    panel.set(title="at higher rates", xscale="log", yscale="log")
    panel.set(xlabel="records a second", ylabel="latency, s")


def bins_panel(panel: Any, every: Every) -> None:
    for kind, style in (("hash-count", "-"), ("key-count", "--")):
        numbers = sorted({one["bins"] for one in every if one["count"] == kind})
        for what, colour in zip(("p50", "p99", "max"), COLOURS, strict=False):
            points = []
            for number in numbers:
                found = of_bins(every, kind, number)
                worst = sorted(one["during"][what] for one in found)
                points.append((number, worst[len(worst) // 2]))
            panel.plot(
                [number for number, _ in points],
                [late for _, late in points],
                color=colour,
                linestyle=style,
                marker="o",
                label=f"{kind}, {what}",
            )
    panel.set(title="bins, while nothing moves", xscale="log", yscale="log")
    panel.set(xlabel="bins", ylabel="latency, s")
