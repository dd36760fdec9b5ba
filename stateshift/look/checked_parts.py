"""The parts of a state that have been checked, and when: one small file a location, to check a part
each night.

    DIR/<name>-<digest>.json    {"location": "hdfs://…/orders", "parts": 30,
                                 "checked": {"1": 1772323200.0, "2": 1772409600.0}}

A part counts as checked when it was read to its end and nothing kept a job from restarting. One
that is damaged is next again, until it is mended. Another number of parts begins anew. The
checkpoints `chk-N` of a Flink job are one location: the job goes on to the next one meanwhile.

Two checks of one location at once lose nothing but a mark: a part is then checked once more.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from stateshift.clusters.whole_files import write_whole
from stateshift.engines.views import NumberedPart
from stateshift.errors import Complaint, SpecError, StorageError
from stateshift.plain import to_plain
from stateshift.private_files import make_folder, open_private
from stateshift.storage import locations

PARTS_MAX = 10_000
NAME_MAX = 60

_NUMBERED = re.compile(r"(\d+)/(\d+)")
_NEXT = re.compile(r"next(?:/(\d+))?")
_CHECKPOINT = re.compile(r"chk-\d+")


@dataclass(frozen=True, slots=True)
class NextPart:
    """The part that is due, of so many; None: of as many as there were before."""

    of: int | None = None


def wanted_part(text: str) -> NumberedPart | NextPart:
    """Return the part that is wanted: `1/30`, `next/30`, or `next`.

    Raises:
        ValueError: the text is none of these; its words say what was expected.
    """
    number = _NUMBERED.fullmatch(text)
    if number is not None:
        parts = _number_of_parts(int(number[2]))
        if not 1 <= int(number[1]) <= parts:
            raise ValueError(f"parts of {parts} are 1/{parts} to {parts}/{parts}")
        return NumberedPart(int(number[1]), parts)
    due = _NEXT.fullmatch(text)
    if due is None:
        raise ValueError("expected 1/30, next/30 or next")
    return NextPart(None if due[1] is None else _number_of_parts(int(due[1])))


def _number_of_parts(of: int) -> int:
    if not 1 <= of <= PARTS_MAX:
        raise ValueError(f"a state has 1 to {PARTS_MAX:,} parts")
    return of


@dataclass(frozen=True, slots=True)
class CheckedParts:
    """When each of so many parts was last found sound; those without a time never were."""

    parts: int
    times: Mapping[int, float] = field(default_factory=dict)

    @property
    def next(self) -> NumberedPart:
        """The first part that was never checked; else the one whose check is the oldest."""
        numbers = range(1, self.parts + 1)
        never = [number for number in numbers if number not in self.times]
        number = never[0] if never else min(numbers, key=lambda each: self.times[each])
        return NumberedPart(number, self.parts)

    @property
    def oldest(self) -> float | None:
        """When the part was checked whose check is the oldest; None where one never was."""
        return min(self.times.values()) if len(self.times) == self.parts else None


@dataclass(frozen=True, slots=True)
class PartsFile:
    """The file that remembers the parts of one location."""

    path: Path
    location: str

    def read(self) -> CheckedParts | None:
        """Return the parts that are remembered; None where none are.

        Raises:
            StorageError: the file cannot be read, or is damaged.
        """
        try:
            with open_private(self.path, os.O_RDONLY) as file:
                return _decoded(json.loads(file.read()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreachable(error) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fact = f"{self.path} does not say which parts were checked: it is damaged"
            hint = f"remove it, and all parts count as unchecked: rm {self.path}"
            raise StorageError(fact, location=str(self.path), hint=hint) from error

    def write(self, checked: CheckedParts) -> None:
        """Remember this instead of what was there.

        Raises:
            StorageError: it cannot be kept.
        """
        times = {str(number): at for number, at in sorted(checked.times.items())}
        plain = {"location": self.location, "parts": checked.parts, "checked": to_plain(times)}
        try:
            make_folder(self.path.parent)
            write_whole(self.path, (json.dumps(plain) + "\n").encode())
        except OSError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError) -> StorageError:
        fact = f"{self.path}: which parts were checked cannot be kept: {error.strerror}"
        hint = "name a folder that stays from night to night: --remember DIR"
        return StorageError(fact, location=str(self.path), hint=hint)


def _decoded(plain: dict[str, object]) -> CheckedParts:
    parts, checked = plain["parts"], plain["checked"]
    if not isinstance(parts, int) or not isinstance(checked, dict):
        raise TypeError
    _number_of_parts(parts)
    times = {int(number): float(at) for number, at in checked.items()}
    if not all(1 <= number <= parts for number in times):
        raise ValueError
    return CheckedParts(parts, times)


def parts_file(folder: Path, location: str) -> PartsFile:
    """Return the file that remembers the parts of a location."""
    whole = locations.normal(location, os.getcwd())
    if _CHECKPOINT.fullmatch(locations.name(whole)):
        whole = locations.parent(whole)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    name = quote(locations.name(whole), safe="")[:NAME_MAX]
    return PartsFile(folder / f"{name}-{digest}.json", locations.redact(whole))


def due_part(file: PartsFile, wanted: NumberedPart | NextPart) -> NumberedPart:
    """Return the part to be read, having made sure that it can be remembered afterwards.

    Raises:
        SpecError: the next one is wanted, and nothing says of how many.
        StorageError: what is remembered cannot be read, or nothing can be kept there.
    """
    before = file.read()
    if isinstance(wanted, NumberedPart):
        part = wanted
    elif before is not None and wanted.of in (None, before.parts):
        part = before.next
    elif wanted.of is not None:
        part = NumberedPart(1, wanted.of)
    else:
        fact = f"no part of {file.location} was checked yet ({file.path} is not there)"
        raise SpecError((Complaint("--part", fact),), hint="say of how many: --part next/30")
    file.write(before or CheckedParts(part.of))
    return part


def remember(file: PartsFile, part: NumberedPart, at: float, sound: bool) -> CheckedParts:
    """Remember that a part was `sound` at this time. Return the checked parts, of as many."""
    before = file.read() or CheckedParts(part.of)
    if sound:
        times = before.times if before.parts == part.of else {}
        before = CheckedParts(part.of, {**times, part.number: at})
        file.write(before)
    return before if before.parts == part.of else CheckedParts(part.of)


def usual_folder(environment: Mapping[str, str]) -> Path:
    """Return the usual folder of remembered parts, by the XDG Base Directory Specification."""
    named = environment.get("XDG_STATE_HOME", "")
    base = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    return base / "stateshift" / "verify"
