"""The results of earlier looks: a file a job, a line a look. A cron job needs no waiting then.

    DIR/<job>.jsonl    {"sample": {…}, "wanted": {"<vertex>": 4}, "states": {"<vertex>": "short"}}

A line that cannot be read is as one that is not there: the file is ours alone, and the next looks
make up for it. Lines that no decision needs any more are left out when the next is added.

Any number of processes may use one folder. A file is replaced whole, so that readers never wait.
Writers take turns (the folder is flocked), and each keeps what the others have added meanwhile.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from stateshift.advise.evaluate.flink_formulas import State
from stateshift.advise.evaluate.inputs import Wish, refuse_odd_numbers
from stateshift.advise.evaluate.samples import JobSample
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.spark_batches import SparkSample
from stateshift.clusters.whole_files import write_whole
from stateshift.errors import StorageError
from stateshift.plain import Misfit, from_plain, to_plain

Sample = JobSample | SparkSample
_SUFFIX = ".jsonl"
# A file's name has at most 255 bytes, also while it is written under a temporary one.
_NAME_MAX = 200


@dataclass(frozen=True, slots=True)
class Observation:
    """The sample of one look, the parallelism that it wanted of each vertex, and their states."""

    sample: Sample
    wanted: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, State] = field(default_factory=dict)

    @property
    def wish(self) -> Wish:
        return Wish(self.sample.time, self.wanted, self.states)


def file_of(folder: Path, job: str) -> Path:
    """Return a job's file. A name too long for one, as Flink SQL makes, ends in its digest."""
    name = quote(job, safe=" ()[],=", errors="surrogatepass")
    if len(name) > _NAME_MAX:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: _NAME_MAX - 17]}-{digest}"
    return folder / f"{name}{_SUFFIX}"


def looks_at(folder: Path, job: str) -> list[Observation]:
    """Return the earlier looks at a job, oldest first; none where there is no file yet.

    Raises:
        StorageError: the file cannot be read.
    """
    file = file_of(folder, job)
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreachable(file, error) from error
    decoded = map(_decode, text.splitlines())
    looks = [look for look in decoded if look is not None]
    return sorted(looks, key=lambda look: look.sample.time)


def keep(
    folder: Path,
    job: str,
    looks: Sequence[Observation],
    before: Iterable[float],
    settings: Settings,
) -> list[Observation]:
    """Write the looks at a job that a later decision may need, and return them. `before` is the
    times of those that were in the file when it was last read or written: others were added since,
    and stay.

    Raises:
        StorageError: the file cannot be written.
    """
    file = file_of(folder, job)
    known = {*before, *(look.sample.time for look in looks)}
    try:
        with _turn(folder):
            added = [look for look in looks_at(folder, job) if look.sample.time not in known]
            kept = drop_unneeded([*looks, *added], settings)
            lines = [json.dumps(_plain(look), separators=(",", ":")) + "\n" for look in kept]
            write_whole(file, "".join(lines).encode())
    except OSError as error:
        raise _unreachable(file, error) from error
    return kept


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Be a folder's only writer, for milliseconds. Without locks the last writer wins."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def add_look(looks: Iterable[Observation], newest: Observation) -> list[Observation]:
    """Return the looks and a new one. Later ones are void: a clock was set back, or is another
    cluster's, and they would count as the last for too long.
    """
    before = [look for look in looks if look.sample.time <= newest.sample.time]
    return [*before, newest]


def drop_unneeded(looks: Iterable[Observation], settings: Settings) -> list[Observation]:
    """Return the looks that a later decision may need, oldest first."""
    in_order = sorted(looks, key=lambda look: look.sample.time)
    if not in_order:
        return []
    lasts = settings.scale_down_interval + max(settings.sample_age_max, settings.metrics_window)
    begins = in_order[-1].sample.time - lasts
    return [look for look in in_order if look.sample.time >= begins]


def _plain(look: Observation) -> dict[str, object]:
    sample = look.sample
    if isinstance(sample, SparkSample):
        sample = replace(sample, batches=())  # they are in the checkpoint
    engine = "spark" if isinstance(sample, SparkSample) else "flink"
    plain = {"engine": engine, "sample": to_plain(sample), "wanted": dict(look.wanted)}
    return {**plain, "states": dict(look.states)} if look.states else plain


def _decode(line: str) -> Observation | None:
    try:
        plain = json.loads(line)
        refuse_odd_numbers(plain)
        kind = SparkSample if plain["engine"] == "spark" else JobSample
        sample = from_plain(kind, plain["sample"])
        wanted = {str(vertex): int(count) for vertex, count in plain["wanted"].items()}
        states = plain.get("states", {})
        wish = from_plain(Wish, {"time": 0.0, "parallelism": wanted, "states": states})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Misfit):
        return None
    return Observation(sample, wish.parallelism, wish.states)


def _unreachable(file: Path, error: OSError) -> StorageError:
    hint = "name another folder with --history"
    return StorageError(f"{file}: {error.strerror}", location=str(file), hint=hint)
