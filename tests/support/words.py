"""Whatever a user may read while a test runs, held against the words of the other engine.

    heard = Heard.listening(monkeypatch)  from here on: errors, hints, findings, discrepancies,
                                          phases, steps, lines
                                          of the meter; plans and reports, as every command shows
                                          them
    heard.foreign_to("flink")             lines with words that a user of Flink does not know

A word counts where it is prose. Paths, options and whole names in quotes are what somebody else
called something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from stateshift.cli.views import plan_text as render_plan
from stateshift.cli.views import run_html as render_html
from stateshift.cli.views import run_text as render_run
from stateshift.cli.views.text import plain_text
from stateshift.documents.plan import plan_document, plan_facts
from stateshift.documents.run import RunFacts, StatusDocument
from stateshift.documents.shape import document_of
from stateshift.errors import StateshiftError
from stateshift.migration import Proposal
from stateshift.report import Report
from stateshift.steering import Live
from stateshift.step import Discrepancy
from stateshift.survey import Finding
from stateshift.world import Unwatched

SPARKS = re.compile(
    (
        r"\b(micro-?batch(es)?|batch(es)?|epochs?|offsets?|commit(s|ted|ting)?|quer(y|ies)|spark|state "
        r"stores?)\b"
    ),
    re.I,
)
FLINKS = re.compile(
    (
        r"\b(savepoints?|key[ -]groups?|subtasks?|max[ "
        r"-]parallelism|taskmanagers?|jobmanagers?|slots?|flink)\b"
    ),
    re.I,
)
FOREIGN = {"flink": SPARKS, "spark": FLINKS}
NO_PROSE = re.compile(r"snappy: .*|\S*/\S*|--[\w-]+|\"[^\" ]*\"|'[^' ]*'|`[^`]*`|\w+\.\w+(\.\w+)*")


def foreign_words(engine: str, text: str) -> list[str]:
    """Return the words of the other engine that stand in the prose of a text."""
    return [match.group() for match in FOREIGN[engine].finditer(NO_PROSE.sub(" ", text))]


def strings_of(document: Any) -> Iterator[str]:
    """The values of a JSON document that are text. Its keys are a promise, and the same for both
    engines.
    """
    match document:
        case str():
            yield document
        case dict():
            for value in document.values():
                yield from strings_of(value)
        case list() | tuple():
            for value in document:
                yield from strings_of(value)


@dataclass
class Heard:
    lines: set[str] = field(default_factory=set)
    proposals: list[Proposal] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)

    @classmethod
    def listening(cls, monkeypatch: pytest.MonkeyPatch) -> Heard:
        heard = cls()
        heard._after(monkeypatch, StateshiftError, lambda one: heard.say(one.fact, one.hint))
        heard._after(monkeypatch, Finding, lambda one: heard.say(one.message, one.hint))
        heard._after(monkeypatch, Discrepancy, lambda one: heard.say(str(one)))
        heard._after(monkeypatch, Proposal, heard.proposals.append)
        heard._after(monkeypatch, Report, heard.reports.append)
        heard._after(monkeypatch, Live, heard.live.append)
        monkeypatch.setattr(Unwatched, "say", lambda _, line: heard.say(line))
        monkeypatch.setattr(Unwatched, "step", lambda _, name, does: heard.say(name, does))
        monkeypatch.setattr(Unwatched, "phase", lambda _, job, name, files, size: heard.say(name))
        return heard

    def say(self, *lines: str | None) -> None:
        self.lines.update(line for line in lines if line)

    def foreign_to(self, engine: str) -> list[str]:
        for proposal in self.proposals:
            self._planned(proposal)
        for report in self.reports:
            self._reported(report)
        return sorted(line for line in self.lines if foreign_words(engine, line))

    def _after(
        self, monkeypatch: pytest.MonkeyPatch, kind: type, then: Callable[[Any], None]
    ) -> None:
        """Have `then` see every value of a kind once it is made."""
        make = kind.__init__  # type: ignore[misc]

        def init(made: Any, *arguments: Any, **named: Any) -> None:
            make(made, *arguments, **named)
            then(made)

        monkeypatch.setattr(kind, "__init__", init)

    def _planned(self, proposal: Proposal) -> None:
        self.say(*plain_text(render_plan.proposal(plan_facts(proposal), verbose=True)).splitlines())
        self.say(*plain_text(render_plan.brief(plan_facts(proposal))).splitlines())
        self.say(*strings_of(plan_document(plan_facts(proposal), verbose=True)))

    def _reported(self, report: Report) -> None:
        now = (report.began or 0.0) + 100.0
        self.say(*plain_text(render_run.status(RunFacts(report, "run", now=now))).splitlines())
        self.say(
            *(
                re.sub(
                    r"<style>.*?</style>|<[^>]+>",
                    "\n",
                    render_html.page(RunFacts(report, "run")),
                    flags=re.S,
                ).splitlines()
            )
        )
        self.say(*strings_of(document_of(StatusDocument, RunFacts(report, "run"))))
        for live in self.live[-3:]:
            shown = render_run.status(RunFacts(report, "run", held=True, live=live))
            self.say(*plain_text(shown).splitlines(), render_run.line(report, live))
            self.say(*plain_text(render_run.watch(report, live)).splitlines())
