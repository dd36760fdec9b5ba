"""`stateshift dataflow`: which operators of a dataflow have to change together, and how long
that takes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stateshift.cli.shell.options import epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.dataflow.operators import Dataflow

EPILOG = """\b
A DATAFLOW is a file of JSON:
  {"operators": [{"name": "read"}, {"name": "split", "kind": "one-to-many"},
                 {"name": "score", "workers": 4}],
   "edges": ["read -> split", {"from": "split", "to": "score", "way": "broadcast"}]}
or what a running job tells of itself: Flink's answer to GET /jobs/:jobid/plan,
or what Spark's explain(extended=True) prints; or a file that joins several of
these by the topics they write and read ("jobs"). With -, it is read from
standard input: curl -s http://…/jobs/…/plan | stateshift dataflow - …
More that may be said of an operator, and what holds where it is not:
  kind                  one-to-one, one-to-many or blocking: one-to-one
  one_per_edge, unique  how much it makes of a tuple, see below: false
  reads, writes         topics; who writes one sends to all that read it: none
  workers               on how many it runs: 1
  job, cluster          whose it is, and where that runs: nobody's
  cost_seconds          what a tuple takes on one worker: 0.001
  rate_per_second       what a source reads: 80 % of what can be worked
and of an edge:
  way                   forward (to the worker of the same number), partitioned
                        (where the key belongs) or broadcast: forward
`stateshift schema dataflow` prints the JSON Schema, for editors.

\b
Words:
  target       an operator whose function changes; its name may have commas
  one-to-one   makes at most one tuple of each it reads, on one of its edges;
               one-to-many any number; "one_per_edge" (true, or a list of
               operators) is one-to-many with at most one on each edge;
               "unique" at most one for each tuple of a source
  blocking     sends nothing before it has read all: what it sends are new
               tuples, and who is above it need not change with who is below
  component    operators that change at one cut: no tuple is met by one of
               them before its change and by another one after. Components
               need not wait for each other
  head         where the change of a component begins
  delay        from the request until no target uses its old function any more

\b
Schedulers (--scheduler):
  fries          messages to the heads, markers inside of components: all else
                 goes on
  epoch          markers from the sources through everything: what a savepoint
                 of the whole dataflow amounts to
  multi-version  both functions side by side; sources say which is meant
  naive          every target at once: fast, and tuples may meet old and new,
                 unless none meets two targets

\b
Rules (--rule) by which fries spares one-to-many operators:
  sound          what they make of a tuple takes only one edge towards targets,
                 or passes one unique operator before every target
  published      as the paper has it: any unique operators; with several targets
                 not always consistent, which is then said
  none           spares nobody

""" + epilog(
    "stateshift dataflow payment-fraud.dataflow.json --targets 'fraud model,apply rules'\n"
    "stateshift dataflow payment-fraud.dataflow.json --targets 'join features' --explain\n"
    "stateshift dataflow plan.json --targets Score --dot | dot -Tsvg > change.svg",
    2,
    e2="the dataflow is not valid, or does not have such a target",
)

T = TypeVar("T", bound=str)
_SEED = 1
STDIN = "standard input"
HINT = "name a file (- is standard input): a dataflow of JSON, or the plan of a running job"


def command(
    terminal: Terminal,
    dataflow: Annotated[
        str,
        typer.Argument(metavar="DATAFLOW", help="A file (or -): JSON, or a running job's plan."),
    ],
    targets: Annotated[
        list[str],
        typer.Option(
            "--targets", metavar="A,B", help="Operators that change, by name. May be repeated."
        ),
    ],
    scheduler: Annotated[
        str, typer.Option("--scheduler", metavar="S", help="fries, epoch, multi-version or naive.")
    ] = "fries",
    rule: Annotated[
        str, typer.Option("--rule", metavar="R", help="sound, published or none.")
    ] = "sound",
    explain: Annotated[
        bool, typer.Option("--explain", help="Say of each operator why it is part of it.")
    ] = False,
    dot: Annotated[
        bool, typer.Option("--dot", help="Print a drawing for Graphviz, and nothing else.")
    ] = False,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a drawing for Mermaid, and nothing else.")
    ] = False,
) -> int | None:
    """Which operators must change together.

    Some operators of running jobs get a new function, a new version or another cluster. Shows which
    of them have to change at one cut, so that no tuple is met by old and new, and which others have
    to wait with them; what goes on undisturbed; in which order they start again; and how long each
    scheduler would take. Reads a file and changes nothing.
    """
    from random import Random

    from stateshift.cli.views import dataflow_json
    from stateshift.cli.views import dataflow_text as render_dataflow
    from stateshift.cli.views.dataflow_facts import change_facts
    from stateshift.dataflow import drawing
    from stateshift.dataflow.delays import expected
    from stateshift.dataflow.pruning import RULES
    from stateshift.dataflow.schedulers import SCHEDULERS, schedule

    _refuse_both(terminal.json, dot, mermaid)
    chosen = _choice("--scheduler", scheduler, SCHEDULERS)
    by = _choice("--rule", rule, RULES)
    flow, wanted = _read(dataflow, targets)
    change = schedule(flow, wanted, chosen, by)
    if dot or mermaid:
        sys.stdout.write(drawing.dot(change) if dot else drawing.mermaid(change))
        return None
    delays = expected(flow, wanted, by, lambda: Random(_SEED))
    facts = change_facts(change, delays, explain)
    terminal.answer(
        "dataflow-change",
        lambda: dataflow_json.document(facts),
        lambda: render_dataflow.blocks(facts, terminal.verbose),
    )
    return None


def _read(path: str, targets: list[str]) -> tuple[Dataflow, tuple[str, ...]]:
    """Return a dataflow, and the operators that change. An error names the file, unless it is
    about an option.
    """
    from stateshift.api.local_files import beside, text_of
    from stateshift.dataflow.parse import asked
    from stateshift.errors import Complaint, SpecError

    is_stdin = path == "-"
    text = _input() if is_stdin else text_of(path, HINT, path)
    try:
        flow, wanted = asked(text, targets, beside("" if is_stdin else path))
    except SpecError as error:
        if not all(complaint.pointer.startswith("--") for complaint in error.complaints):
            error.where["path"] = STDIN if is_stdin else path
        raise
    if not wanted:
        raise SpecError((Complaint("--targets", "names no operator"),), hint="--targets A,B")
    return flow, wanted


def _input() -> str:
    """Return all of standard input; what is no text is the request's fault, as that of a file
    is.
    """
    from stateshift.errors import Complaint, SpecError

    raw = getattr(sys.stdin, "buffer", None)  # there is none where it was closed
    try:
        return "" if raw is None else str(raw.read(), "utf-8-sig")
    except UnicodeDecodeError as error:
        fact = f"not UTF-8 text (at byte {error.start})"
        raise SpecError((Complaint(STDIN, fact),), hint=HINT) from error


def _refuse_both(*documents: bool) -> None:
    """Refuse a second document: one at a time goes to stdout."""
    from stateshift.errors import Complaint, SpecError

    if sum(documents) > 1:
        raise SpecError(
            (Complaint("--json, --dot, --mermaid", "more than one document at once"),),
            hint="leave all but one of them out",
        )


def _choice(flag: str, text: str, choices: tuple[T, ...]) -> T:
    from stateshift.errors import Complaint, SpecError

    for choice in choices:
        if text.strip().lower() == choice:
            return choice
    names = ", ".join(choices)
    complaint = Complaint(flag, f"{text!r} is not one of {names}", text, f"one of {names}")
    raise SpecError((complaint,), hint=f"{flag} {choices[0]}")
