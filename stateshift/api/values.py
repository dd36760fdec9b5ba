"""The results of the functions: frozen values, each with the document of its command.

`to_dict()` gives plain dictionaries, lists, strings, numbers, booleans and None: `json.dumps` takes
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from stateshift.documents.shape import document_of, documents_of

if TYPE_CHECKING:
    import pyarrow as pa

    from stateshift.advise.advising import Advice
    from stateshift.check.verdict import Checked
    from stateshift.documents.survey import SurveyFacts
    from stateshift.engines.views import DecodedFile, Differences, Export, Wanted
    from stateshift.look import Judgement
    from stateshift.migration import Proposal, Verdict
    from stateshift.report import Report
    from stateshift.steering import Live
    from stateshift.storage.protocol import Storage
    from stateshift.survey import Finding

Plain = dict[str, object]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The contents of a location: `facts` of a directory, or one `file`, decoded."""

    location: str
    facts: SurveyFacts | None = None
    file: DecodedFile | None = None

    @property
    def engine(self) -> str | None:
        """`spark` or `flink`; None for a single file."""
        return self.facts.survey.engine if self.facts is not None else None

    @property
    def epoch(self) -> int | None:
        """The last committed batch or checkpoint; None for a workflow and for a single file."""
        return self.facts.survey.epoch if self.facts is not None else None

    def to_dict(self) -> Plain:
        """Return the document of `stateshift inspect --json`."""
        from stateshift.documents.survey import SurveyDocument, file_document

        if self.file is not None:
            return cast(Plain, file_document(self.file, self.location))
        assert self.facts is not None, "an inspection is of a directory or of a file"
        return cast(Plain, document_of(SurveyDocument, self.facts))


@dataclass(frozen=True, slots=True)
class ImageVerdict:
    """Whether a job could restart from an image, and what was found on the way."""

    judgement: Judgement

    @property
    def ok(self) -> bool:
        """Whether a job could restart from the newest epoch."""
        return self.judgement.restartable

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, the refusals among them."""
        return self.judgement.findings

    def to_dict(self) -> Plain:
        """Return the document of `stateshift verify LOCATION --json`."""
        from stateshift.documents.judgement import JudgementDocument

        return cast(Plain, document_of(JudgementDocument, self.judgement))


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """Whether everything that a run has done still holds."""

    verdict: Verdict
    report: Report
    workdir: str

    @property
    def ok(self) -> bool:
        """Whether the evidence of every step holds: none does of a run that was taken back."""
        return bool(self.to_dict()["holds"])

    def to_dict(self) -> Plain:
        """Return the document of `stateshift verify WORKDIR --json`."""
        from stateshift.documents.run import VerdictDocument, VerdictFacts

        facts = VerdictFacts(self.verdict, self.report, self.workdir)
        return cast(Plain, document_of(VerdictDocument, facts))


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The plan of a move. `apply` carries out exactly this, or refuses it as stale."""

    proposal: Proposal
    judged: Proposal | None = None  # the same, with the rule that it would break now

    @property
    def fingerprint(self) -> str:
        """The same for the same plan of the same facts."""
        return self.proposal.fingerprint

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """Why `apply` would refuse it; empty where it would not."""
        return tuple((self.judged or self.proposal).refusals)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file that `apply` and `stateshift apply` take."""
        from stateshift.api.requests import save

        save(self.proposal, os.fspath(path))

    def to_dict(self) -> Plain:
        """Return the document of `stateshift plan --json`."""
        from stateshift.documents.plan import plan_document, plan_facts

        return cast(Plain, plan_document(plan_facts(self.judged or self.proposal)))


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: its report, and the workdir that `resume` and `rollback` take."""

    report: Report
    workdir: str
    page: str | None = None

    @property
    def run(self) -> str:
        """The run's name."""
        return self.report.run

    @property
    def state(self) -> str:
        """`finished` or `rolled-back`."""
        return self.report.state

    @property
    def downtime_seconds(self) -> float | None:
        """How long the job was down; None where that is not known."""
        return self.report.downtime_seconds

    def to_dict(self) -> Plain:
        """Return the document of `stateshift apply --json`; `resume` and `rollback` have it too."""
        from stateshift.documents.run import EndedRunDocument, RunFacts

        facts = RunFacts(self.report, self.workdir, page=self.page)
        return cast(Plain, document_of(EndedRunDocument, facts))


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run. `at_work` says whether a process works on it now, `live` what it does."""

    report: Report
    workdir: str
    at_work: bool
    live: Live | None = None
    page: str | None = None
    now: float | None = None

    @property
    def run(self) -> str:
        """The run's name."""
        return self.report.run

    @property
    def state(self) -> str:
        """`running`, `finished`, `failed`, `interrupted`, `rolling-back` or `rolled-back`."""
        from stateshift.documents.run import shown_state

        return shown_state(self.report.state, self.at_work)

    def to_dict(self) -> Plain:
        """Return the document of `stateshift status --json`."""
        from stateshift.documents.run import RunFacts, StatusDocument

        facts = RunFacts(self.report, self.workdir, self.at_work, self.live, self.page, self.now)
        return cast(Plain, document_of(StatusDocument, facts))


@dataclass(frozen=True, slots=True)
class ImageDiff:
    """Two images compared entry by entry."""

    differences: Differences

    @property
    def equal(self) -> bool | None:
        """Whether both hold the same; None where all is equal that could be compared."""
        different = self.differences.different
        return None if different is None else not different

    def to_dict(self) -> Plain:
        """Return the document of `stateshift diff --json`."""
        from stateshift.documents.diff import DiffDocument, diff_facts

        return cast(Plain, document_of(DiffDocument, diff_facts(self.differences)))


@dataclass(frozen=True, slots=True)
class CodeCheck:
    """The verdicts on a file's queries."""

    checked: Checked

    @property
    def verdict(self) -> str:
        """The worst one: `starts`, `not-known`, `starts-but`, `starts-after` or `never`."""
        return self.checked.verdict

    def to_dict(self) -> list[Plain]:
        """Return the document of `stateshift check --json`."""
        from stateshift.documents.check import CheckDocument, queries_of

        return cast("list[Plain]", documents_of(CheckDocument, queries_of(self.checked)))


@dataclass(frozen=True, slots=True)
class JobAdvice:
    """The verdict on a running job, with all that it was made from."""

    advice: Advice

    @property
    def job(self) -> str:
        """The job's name."""
        return self.advice.verdict.job

    @property
    def verdict(self) -> str:
        """`fits`, `scale`, `move`, `limited` or `unknown`."""
        return self.advice.verdict.word

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, in words; of `unknown`, what is missing."""
        return self.advice.verdict.reasons

    @property
    def parallelism(self) -> int | None:
        """That of its widest vertex, or with Spark its cores; None if it is not known."""
        return self.advice.verdict.parallelism

    @property
    def wanted(self) -> int | None:
        """The parallelism that is advised."""
        return self.advice.verdict.wanted

    def to_dict(self) -> Plain:
        """Return this job's part of the document of `stateshift advise --json`."""
        from stateshift.documents.advice import advice_document

        return cast(Plain, advice_document(self.advice))


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file that state was written to."""

    export: Export
    file: str
    bytes: int

    @property
    def entries(self) -> int:
        """How many entries, or changes, it holds."""
        return self.export.entries

    def to_dict(self) -> Plain:
        """Return the document of `stateshift export --json`."""
        from stateshift.documents.survey import export_document

        return cast(Plain, export_document(self.export, self.file, self.bytes))


@dataclass(frozen=True, slots=True)
class StateExport:
    """The state that was chosen, read when it is asked for: each call reads it again."""

    location: str
    wanted: Wanted
    open_storage: Callable[[str], Storage]

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        """The operator and the name of each store that was chosen."""
        return self._made("jsonl").stores

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of `stateshift export --to -`, some at a time: JSON, each entry on one.

        What folding a shard takes, and some lines, is held at once.

        Raises:
            FormatError: a file's bytes are not what its format says.
        """
        yield from self._made("jsonl").chunks()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield Arrow record batches: operator, store, shard, key and value of each entry.

        No more than a batch, and what folding the state takes, is held at once.

        Raises:
            PlanError: the stores chosen have several schemas; choose with `operator` and `store`.
            FormatError: a file's bytes are not what its format says.
        """
        from stateshift.table.tables import record_batches

        yield from record_batches(self._made("arrow").chunks())

    def table(self) -> pa.Table:
        """Return everything as one Arrow table.

        Raises:
            PlanError: the stores chosen have several schemas; choose with `operator` and `store`.
            FormatError: a file's bytes are not what its format says.
        """
        from stateshift.table.tables import table_of

        return table_of(self._made("arrow").chunks())

    def save(self, file: str | os.PathLike[str]) -> ExportedFile:
        """Write a file, whole or not at all; `.parquet`, `.arrow` or `.jsonl` decides its format.

        Raises:
            SpecError: the suffix is none of these.
            StorageError: the file cannot be written.
        """
        from stateshift import look

        to = os.fspath(file)
        made = look.export(self.location, to, self.wanted, self.open_storage)
        return ExportedFile(made, to, look.save(made, to, self.open_storage))

    def _made(self, format: str) -> Export:
        from stateshift import look

        return look.rows_of(self.location, format, self.wanted, self.open_storage)
