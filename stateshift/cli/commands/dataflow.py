"""`stateshift dataflow`: which operators of a dataflow have to change together, and how long
that takes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.shell.options import argument, choice, command, flag, option
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import SpecError

if TYPE_CHECKING:
    from stateshift.specification.dataflow.operators import Dataflow

NOTES = """\b
A DATAFLOW is a file of JSON:
  {"operators": [{"name": "read"}, {"name": "split", "kind": "one-to-many"},
                 {"name": "score", "workers": 4}],
   "edges": ["read -> split", {"from": "split", "to": "score", "way": "broadcast"}]}
or the plan of a running job: Flink's answer to GET /jobs/:jobid/plan, or the
output of Spark's explain(extended=True); or a file that joins several of these
by the topics they write and read ("jobs"). With -, it is read from standard
input: curl -s http://…/jobs/…/plan | stateshift dataflow - …
Optional keys of an operator, each with its default:
  kind                  one-to-one (default), one-to-many or blocking
  one_per_edge, unique  how many tuples it makes of one, see below (false)
  reads, writes         topics; a writer sends to all readers (none)
  workers               its parallelism (1)
  job, cluster          the job it belongs to, and where that runs (none)
  cost_seconds          seconds per tuple on one worker (0.001)
  rate_per_second       what a source reads (80 % of the capacity)
and of an edge:
  way                   forward (default: to the worker of the same number),
                        partitioned (by key) or broadcast
`stateshift schema dataflow` prints the JSON Schema, for editors.

\b
Words:
  target       an operator whose function changes; its name may have commas
  one-to-one   makes at most one tuple from each input tuple, on one edge
  one-to-many  makes any number. "one_per_edge" (true, or a list of operators):
               at most one on each edge. "unique": at most one for each tuple
               of a source
  blocking     sends nothing before it has read everything. What it sends are
               new tuples, so operators upstream of it need not change together
               with operators downstream
  component    operators that change at one cut: no tuple is processed by one
               of them before its change and by another after it. Components
               do not wait for each other
  head         where the change of a component begins
  delay        from the request until no target uses its old function any more

\b
Schedulers (--scheduler):
  fries          messages to the heads, markers inside components; the other
                 operators run on
  epoch          markers from the sources through all operators, as for a
                 savepoint of the whole dataflow
  multi-version  old and new function side by side; sources tag each tuple with
                 a version
  naive          every target at once: fast, but a tuple that passes two
                 targets may be processed by old and new

\b
Rules (--rule) by which fries leaves one-to-many operators out:
  sound          the tuples they make take only one edge towards targets, or
                 pass one unique operator before every target
  published      the rule of the paper: any unique operators. Not always
                 consistent with several targets; the output then says so
  none           leaves none out

"""

_SEED = 1
STDIN = "standard input"
HINT = "name a file (- is standard input): a dataflow of JSON, or the plan of a running job"


@command(
    "stateshift dataflow payment-fraud.dataflow.json --targets 'fraud model,apply rules'\n"
    "stateshift dataflow payment-fraud.dataflow.json --targets 'join features' --explain\n"
    "stateshift dataflow plan.json --targets Score --dot | dot -Tsvg > change.svg",
    (2,),
    before=NOTES,
    e2="the dataflow is not valid, or does not have such a target",
)
def dataflow(
    terminal: Terminal,
    dataflow: Annotated[str, argument("DATAFLOW", "A file (or -): JSON, or a running job's plan.")],
    targets: Annotated[
        list[str], option("--targets", "A,B", "Operators that change, by name. May be repeated.")
    ],
    scheduler: Annotated[
        str, option("--scheduler", "S", "fries, epoch, multi-version or naive.")
    ] = "fries",
    rule: Annotated[str, option("--rule", "R", "sound, published or none.")] = "sound",
    explain: Annotated[
        bool, flag("--explain", "Explain for each operator why it has to wait.")
    ] = False,
    dot: Annotated[bool, flag("--dot", "Print a drawing for Graphviz, and nothing else.")] = False,
    mermaid: Annotated[
        bool, flag("--mermaid", "Print a drawing for Mermaid, and nothing else.")
    ] = False,
) -> int | None:
    """Which operators must change together.

    Use it when operators of running jobs get a new function, a new version or another cluster.
    Shows which operators must change at one cut so that no tuple is processed by old and new, which
    others wait with them, which run on, the order of restarts, and how long each scheduler takes.
    Reads a file and changes nothing.
    """
    from random import Random

    from stateshift.cli.views import dataflow_text as render_dataflow
    from stateshift.dataflow.components import RULES
    from stateshift.dataflow.delays import forecast
    from stateshift.dataflow.schedulers import SCHEDULERS, schedule
    from stateshift.documents.dataflow import DataflowDocument, change_facts

    if sum((terminal.json, dot, mermaid)) > 1:  # one document at a time goes to stdout
        message, hint = "more than one document at once", "leave all but one of them out"
        raise SpecError.of("--json, --dot, --mermaid", message, hint=hint)
    chosen = choice("--scheduler", scheduler, SCHEDULERS)
    by = choice("--rule", rule, RULES)
    flow, wanted = _read(dataflow, targets)
    change = schedule(flow, wanted, chosen, by)
    if dot or mermaid:
        draw = render_dataflow.dot if dot else render_dataflow.mermaid
        sys.stdout.write("\n".join(draw(change)) + "\n")
        return None
    delays = forecast(flow, wanted, by, lambda: Random(_SEED))
    facts = change_facts(change, delays, explain)
    terminal.answer_value(
        "dataflow-change", DataflowDocument, facts, render_dataflow.blocks(facts, terminal.verbose)
    )
    return None


def _read(path: str, targets: list[str]) -> tuple[Dataflow, tuple[str, ...]]:
    """Return a dataflow, and what changes. Errors name the file, but for those about an option."""
    from stateshift.api.local_files import beside, text_of
    from stateshift.specification.dataflow.parse import parse_request

    is_stdin = path == "-"
    text = _input() if is_stdin else text_of(path, HINT, path)
    try:
        flow, wanted = parse_request(text, targets, beside("" if is_stdin else path))
    except SpecError as error:
        if not all(complaint.pointer.startswith("--") for complaint in error.complaints):
            error.where["path"] = STDIN if is_stdin else path
        raise
    if not wanted:
        raise SpecError.of("--targets", "names no operator", hint="--targets A,B")
    return flow, wanted


def _input() -> str:
    """Return all of standard input. As with a file, it is the request's fault if it is no text."""
    raw = getattr(sys.stdin, "buffer", None)  # there is none where it was closed
    try:
        return "" if raw is None else str(raw.read(), "utf-8-sig")
    except UnicodeDecodeError as error:
        fact = f"not UTF-8 text (at byte {error.start})"
        raise SpecError.of(STDIN, fact, hint=HINT) from error
