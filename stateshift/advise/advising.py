"""Look at jobs, wait where one look is not enough, and judge.

    adviser = Adviser(find, settings, clock, sample_seconds, history)
    adviser.round() -> [Advice(inputs, verdict), ...]      one a job, in their order

The jobs are looked up again in each round: one may have been moved, or started under another id.
Nothing that is wrong with a job ends a round: it is a verdict, "unknown", with the reason.

The results of earlier looks are kept, a file a job, a line a look: a cron job needs no waiting
then.

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
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import quote

from stateshift.advise.evaluate.flink_formulas import State
from stateshift.advise.evaluate.inputs import (
    Circumstances,
    FlinkInputs,
    FreeSlots,
    Inputs,
    RestartCost,
    SparkInputs,
    Wish,
    refuse_odd_numbers,
)
from stateshift.advise.evaluate.samples import JobSample, Unusable, usable
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.spark_batches import CoresSource, SparkSample, shows_growth
from stateshift.advise.evaluate.verdicts import Verdict, verdict_on
from stateshift.clusters.whole_files import write_whole
from stateshift.errors import Interrupted, StateshiftError, StorageError
from stateshift.plain import Misfit, from_plain, to_plain
from stateshift.world import Clock

_log = logging.getLogger(__name__)


class Source(Protocol):
    """The source of samples of one job."""

    def look(self) -> Sample: ...


@dataclass(frozen=True)
class JobFacts:
    """The facts of a job beside its samples. `note` is a word on the cluster it runs on."""

    restart: RestartCost = field(default_factory=RestartCost)
    slots: FreeSlots | None = None
    note: str = ""


@dataclass(frozen=True)
class Subject:
    """A job to look at. `open` finds it, each time anew: a job that was restarted has another id.
    `ask` tells the rest, of a job that was found. `trouble` is the reason for which it is not even
    looked for. `cores` are those that the caller gives, `cores_asked_for` those that the job was to
    be started with. `note` is a word on the cluster it runs on, `since` the time of its move there.
    """

    job: str
    engine: Literal["flink", "spark"]
    open: Callable[[], Source] | None = None
    ask: Callable[[], JobFacts] = JobFacts
    location: str | None = None
    cores: int | None = None
    cores_asked_for: int | None = None
    trouble: str | None = None
    note: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """A verdict, and its inputs."""

    inputs: Inputs
    verdict: Verdict


@dataclass
class _Watched:
    """A subject during a round: its looks, its trouble, and the looks that its history had."""

    subject: Subject
    looks: list[Observation]
    trouble: str | None = None
    kept: tuple[float, ...] = ()


@dataclass(eq=False)
class Adviser:
    """Judges jobs in one round or in many. `find` returns them, where each runs now."""

    _find: Callable[[], Sequence[Subject]]
    _settings: Settings
    _clock: Clock
    _sample_seconds: float
    _folder: Path | None = None
    _watched: list[_Watched] = field(default_factory=list, init=False)

    def round(self) -> list[Advice]:
        """Look at each job, a second time where it takes two looks, and judge them all.

        Raises:
            SpecError: there is no such job.
            JournalError: the records of where jobs are cannot be read.
            StorageError: the history cannot be read or written.
        """
        # Two may have one name.
        before: dict[str, list[_Watched]] = {}
        for watched in self._watched:
            before.setdefault(watched.subject.job, []).append(watched)
        present = []
        for subject in self._find():
            same = before.get(subject.job)
            if same:
                present.append(replace(same.pop(0), subject=subject))
                continue
            folder = self._folder
            looks = [] if folder is None else looks_at(folder, subject.job)
            present.append(_Watched(subject, looks, kept=_times(looks)))
        self._watched = present
        for watched in self._watched:
            self._look(watched)
        again = [watched for watched in self._watched if self._needs_another(watched)]
        if again:
            self._clock.sleep(self._sample_seconds)
        for watched in again:
            self._look(watched)
        return [self._judge(watched) for watched in self._watched]

    def _look(self, watched: _Watched) -> None:
        subject, watched.trouble = watched.subject, watched.subject.trouble
        if subject.open is None:
            return
        try:
            look = Observation(subject.open().look())
        except Interrupted:
            raise
        except StateshiftError as error:
            _log.debug("%s cannot be looked at: %s", subject.job, error)
            watched.trouble = str(error)
        else:
            watched.looks = add_look(watched.looks, look)

    def _needs_another(self, watched: _Watched) -> bool:
        """Whether a second look, soon, would tell more than this one."""
        if watched.trouble is not None or not watched.looks:
            return False
        last = watched.looks[-1].sample
        if isinstance(last, SparkSample):
            if last.lag is None or len(_spark_samples(watched.looks)) > 1:
                return False
            return not shows_growth(last, self._settings)
        settled = last.time >= last.started + self._settings.stabilization_interval
        samples = _flink_samples(watched.looks)
        return settled and isinstance(usable(samples, last.time, self._settings), Unusable)

    def _judge(self, watched: _Watched) -> Advice:
        inputs = self._inputs(watched)
        verdict = verdict_on(inputs)
        if watched.trouble is None and watched.looks:
            watched.looks[-1] = replace(
                watched.looks[-1], wanted=verdict.wish, states=verdict.states
            )
            watched.looks = drop_unneeded(watched.looks, self._settings)
            if self._folder is not None:
                job, before = watched.subject.job, watched.kept
                watched.looks = keep(self._folder, job, watched.looks, before, self._settings)
                watched.kept = _times(watched.looks)
        return Advice(inputs, verdict)

    def _inputs(self, watched: _Watched) -> Inputs:
        subject, known = watched.subject, JobFacts()
        if watched.trouble is None:
            try:
                known = subject.ask()
            except Interrupted:
                raise
            except StateshiftError as error:
                _log.debug("%s: %s", subject.job, error)
        around = Circumstances(
            job=subject.job,
            now=watched.looks[-1].sample.time if watched.looks else self._clock.now(),
            settings=self._settings,
            restart=known.restart,
            slots=known.slots,
            wishes=tuple(look.wish for look in watched.looks if look.wanted),
            trouble=watched.trouble,
            location=subject.location,
            note="; ".join(filter(None, (subject.note, known.note))),
            since=subject.since,
        )
        if subject.engine == "spark":
            samples = tuple(_spark_samples(watched.looks))
            return SparkInputs(around, samples, *_cores(subject, samples))
        return FlinkInputs(around, tuple(_flink_samples(watched.looks)))


def _times(looks: Sequence[Observation]) -> tuple[float, ...]:
    return tuple(look.sample.time for look in looks)


def _cores(
    subject: Subject, samples: Sequence[SparkSample]
) -> tuple[int | None, CoresSource | None]:
    """Return the cores that a query runs on, and their source: the first that is to be believed."""
    last = samples[-1] if samples else None
    driver = None if last is None else last.driver
    by_source: Mapping[CoresSource, int | None] = {
        "option": subject.cores,
        "driver": None if driver is None else driver.cores,
        "query": None if last is None else last.cores,
        "spec": subject.cores_asked_for,
    }
    return next(((cores, source) for source, cores in by_source.items() if cores), (None, None))


def _flink_samples(looks: Sequence[Observation]) -> list[JobSample]:
    return [look.sample for look in looks if isinstance(look.sample, JobSample)]


def _spark_samples(looks: Sequence[Observation]) -> list[SparkSample]:
    return [look.sample for look in looks if isinstance(look.sample, SparkSample)]


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
