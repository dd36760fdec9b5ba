"""Numbers as a person reads them: bytes, seconds, counts, ranges. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from stateshift.terms import moment


def size(count: float) -> str:
    """Return `0 B`, `46 B`, `1.5 KiB`, `3.2 GiB`: three digits are enough."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1000 or unit == "TiB":
            break
    return f"{count:.1f} {unit}" if count < 99.95 else f"{count:.0f} {unit}"


def span(seconds: float) -> str:
    """Return `0.04 s`, `7.3 s`, `2 min 05 s`, `3 h 12 min`."""
    if seconds < 9.995:
        return f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    whole //= 60
    return f"{whole // 60} h {whole % 60:02d} min"


def number(count: int) -> str:
    """Return `34,012`: digits in threes."""
    return f"{count:,}"


def dash(count: int, shown: Callable[[int], str]) -> str:
    """Return a count in a table, where nothing is shown as a dash."""
    return shown(count) if count else "-"


def about(seconds: float) -> str:
    """Return an estimate: nobody can promise less than a second."""
    return "less than 1 s" if seconds < 1 else span(seconds)


def per_second(rows: float | None) -> str:
    """Return rows a second, as three digits say them; a dash where they are not known."""
    if rows is None:
        return "-"
    return f"{rows:,.0f}" if rows >= 99.5 or rows == 0 else f"{rows:.3g}"


def many(count: int, singular: str, plural: str | None = None) -> str:
    """Return `1 file` or `2 files`."""
    if count == 1:
        return f"1 {singular}"
    return f"{number(count)} {plural or f'{singular}s'}"


def amounts_compared(counts: Mapping[str, int]) -> str:
    """Return `4 files compared whole, 10 entries in the others`: what is the same, by its unit."""
    whole = []
    if counts.get("files"):
        whole.append(many(counts["files"], "file"))
    if counts.get("key_groups"):
        whole.append(many(counts["key_groups"], "key group"))
    entries = many(counts.get("entries", 0), "entry", "entries")
    if not whole:
        return entries
    said = f"{' and '.join(whole)} compared whole"
    return f"{said}, {entries} in the others" if counts.get("entries") else said


def share(part: int, whole: int) -> str:
    """Return `94 %` of the whole, never rounded up to all or down to nothing."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 1:
        return "< 1 %"
    if 99 < percent < 100:
        return "> 99 %"
    return f"{percent:.0f} %"


def ranges(numbers: Iterable[int]) -> str:
    """Return `0-4, 7, 9-12`: how many epochs are shown."""
    shown = []
    for first, last in _runs(sorted(set(numbers))):
        shown.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(shown)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive numbers."""
    if not numbers:
        return
    first = last = numbers[0]
    for number_ in numbers[1:]:
        if number_ != last + 1:
            yield first, last
            first = number_
        last = number_
    yield first, last


def bar(start: float, seconds: float, whole: float, width: int) -> str:
    """Return a stretch of time as a bar on a line of `width`; it is never invisible."""
    if whole <= 0:
        return "█" * width
    first = min(width - 1, int(width * start / whole))
    last = max(first + 1, min(width, round(width * (start + seconds) / whole)))
    return " " * first + "█" * (last - first)


def clock(at: float) -> str:
    """Return a moment in universal time, without that name: a table's head has it."""
    return moment(at).removesuffix(" UTC")
