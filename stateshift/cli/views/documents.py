"""Every document that `--json` prints, by the name that `stateshift schema --of NAME` knows it by.

    DOCUMENTS    name -> its typed shapes, and the commands that print it
    schema_of    the JSON Schema (2020-12) of one, generated from its shapes

The shapes are the classes of `stateshift.documents`, `manual` and `completion`. A published schema
lets unknown keys pass, since later versions add some. The strict one, for tests, does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from stateshift.cli.commands import PANELS
from stateshift.cli.views import completion, manual
from stateshift.documents import (
    advice,
    begin,
    bins,
    check,
    dataflow,
    diff,
    judgement,
    live,
    live_state,
    metrics,
    plan,
    problems,
    query,
    rebalance,
    run,
    standby,
    survey,
)
from stateshift.documents.shape import Definitions, Schema
from stateshift.notification.event import NotificationDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class Document:
    """The document of one or several commands: one of the shapes, or a list of them where `many`.

    A document without shapes is a JSON Schema itself.
    """

    title: str
    commands: tuple[str, ...]
    shapes: tuple[type, ...]
    many: bool = False


RUNS = ("apply", "resume", "rollback")
SHORTCUTS = ("move", *PANELS["Change state"])

DOCUMENTS: Mapping[str, Document] = {
    "inspect": Document(
        "What is at a location", ("inspect",), (survey.SurveyDocument, survey.FileDocument)
    ),
    "verify": Document(
        "Whether a job could restart from an image, or whether a run's work still holds",
        ("verify",),
        (judgement.JudgementDocument, run.VerdictDocument),
    ),
    "plan": Document("What would be done", ("plan",), (plan.PlanDocument,)),
    "report": Document(
        "What a run did, and why it stopped if it did",
        (*RUNS, *SHORTCUTS, "failover", "failback", "drill"),
        (run.FailedRunDocument, run.EndedRunDocument),
    ),
    "status": Document("Where a run stands", ("status",), (run.StatusDocument,)),
    "standby": Document(
        "A standby at its location, or a primary whose job runs at one",
        ("status LOCATION",),
        (standby.StandbyDocument, standby.SupersededDocument),
    ),
    "failover": Document(
        "The primary of a job that runs at its standby",
        ("failover LOCATION",),
        (standby.FencedDocument,),
    ),
    "runs": Document(
        "All runs, oldest first", ("runs",), (run.StatusDocument, run.DamagedRunDocument), many=True
    ),
    "metrics": Document(
        "Metrics of all runs, for Prometheus", ("metrics",), (metrics.MetricsDocument,)
    ),
    "steering": Document(
        "What was asked of a run at work", ("cutover", "pause", "throttle"), (run.SteeringDocument,)
    ),
    "export": Document("What was written to a file", ("export",), (survey.ExportDocument,)),
    "line": Document(
        "One line of exported JSON lines",
        ("export --to FILE.jsonl", "export --to -"),
        (survey.LineDocument,),
    ),
    "answer": Document(
        "What the state of images answers, or which tables they have",
        ("query",),
        (query.AnswerDocument,),
    ),
    "profile": Document(
        "How many entries an image has, how large and how old they are, and where they lie",
        ("profile",),
        (query.ProfileDocument,),
    ),
    "diff": Document("How two images differ", ("diff",), (diff.DiffDocument,)),
    "uid": Document(
        "What operators' names become", ("uid",), (survey.OperatorIdDocument,), many=True
    ),
    "init": Document("A spec to begin with", ("init",), (begin.InitDocument,)),
    "doctor": Document(
        "Whether all is here that a run needs", ("doctor",), (begin.Check,), many=True
    ),
    "check": Document(
        "Whether code starts from a state", ("check",), (check.CheckDocument,), many=True
    ),
    "dataflow-change": Document(
        "Which operators of a dataflow have to change together",
        ("dataflow",),
        (dataflow.DataflowDocument,),
    ),
    "advise": Document(
        "A verdict on each job: does it fit, should it scale or move",
        ("advise",),
        (advice.AdviseDocument,),
        many=True,
    ),
    "rebalance": Document(
        "Which jobs move between clusters, and what became of it",
        ("rebalance",),
        (rebalance.RebalanceDocument,),
    ),
    "live-change": Document(
        "A change of functions that run, and how far it has come",
        tuple(f"live {act}" for act in ("replace", "introduce", "remove", "revert", "abort")),
        (
            live.AbortedLiveChangeDocument,
            live.LiveChangeDocument,
            live.LiveAbortDocument,
            bins.LiveMoveAbortDocument,
        ),
    ),
    "live-move": Document(
        "Bins that move between running jobs, and how far it has come",
        ("live move",),
        (bins.AbortedLiveMoveDocument, bins.LiveMoveDocument),
    ),
    "live-bins": Document(
        "How many bins a group has, which are hot, and another number of them",
        ("live bins",),
        (bins.AbortedLiveCountDocument, bins.LiveCountDocument),
    ),
    "live-steering": Document(
        "What was asked of whoever moves bins, from now on",
        ("live pause", "live resume", "live throttle"),
        (bins.LiveSteeringDocument,),
    ),
    "live-status": Document(
        "What runs in a group, and what is under way", ("live status",), (live.LiveStatusDocument,)
    ),
    "live-history": Document(
        "All changes of a group", ("live history",), (live.LiveHistoryDocument,)
    ),
    "live-import": Document(
        "State that was brought into a group", ("live import",), (live_state.LiveImportDocument,)
    ),
    "live-export": Document(
        "State of a group that was written to a file",
        ("live export",),
        (live_state.LiveExportDocument,),
    ),
    "live-evict": Document(
        "A worker whose name is free", ("live evict",), (live_state.LiveEvictDocument,)
    ),
    "live-buffer": Document(
        "A buffer before a streaming job", ("live buffer",), (live_state.LiveBufferDocument,)
    ),
    "schema": Document("A JSON Schema", ("schema",), ()),
    "man": Document("Which man pages were written", ("man",), (manual.ManPageDocument,), many=True),
    "completion": Document(
        "A shell's completion script", ("completion",), (completion.CompletionDocument,)
    ),
    "notification": Document(
        "What a receiver of `on` in a spec gets",
        ("nothing: a run sends it",),
        (NotificationDocument,),
    ),
    "error": Document(
        "Why a command failed", ("any command that fails",), (problems.ErrorDocument,)
    ),
}


def name_of(asked: str) -> str | None:
    """Return the name of the document that is called so, or that a command of this name prints."""
    if asked in DOCUMENTS:
        return asked
    for name, document in DOCUMENTS.items():
        if asked in document.commands:
            return name
    return None


def schema_of(name: str, strict: bool = False) -> Schema:
    """Return the JSON Schema of a document; a strict one refuses keys that it does not know."""
    document = DOCUMENTS[name]
    definitions = Definitions(strict)
    schemas = [definitions.schema(shape) for shape in document.shapes]
    match schemas:
        case []:
            document_schema: Schema = {"$ref": DIALECT}
        case [schema]:
            document_schema = schema
        case _:
            document_schema = {"anyOf": schemas}
    if document.many:
        document_schema = {"type": "array", "items": document_schema}
    return {
        "$schema": DIALECT,
        "$id": f"stateshift/outputs/{name}.schema.json",
        "title": document.title,
        "description": f"Printed with --json by: {', '.join(document.commands)}.",
        **document_schema,
        "$defs": dict(sorted(definitions.by_name.items())),
    }


def schema_text(schema: Schema) -> str:
    """Return a schema as it is checked in, and as `stateshift schema` prints it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
