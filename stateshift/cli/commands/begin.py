"""The commands before the first run: `init` writes a spec, `doctor` looks whether all is here."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import (
    WORKDIRS,
    Waive,
    Workdirs,
    argument,
    choice,
    command,
    flag,
    names_in,
    option,
    refuse_no_file,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import Complaint, PlanError, SpecError, StateshiftError

if TYPE_CHECKING:
    from stateshift.api.doctor import Subjects
    from stateshift.api.init import Question
    from stateshift.cli.views.text import Line, Tone
    from stateshift.documents.begin import Check
    from stateshift.migration import Adapters
    from stateshift.specification.profile import Profile
    from stateshift.survey import Finding

TONES: Mapping[str, Tone] = {"ok": "good", "warn": "warn", "fail": "bad"}


@command(
    "stateshift init /checkpoints/orders --to s3://lake/orders -o orders.yaml\n"
    "stateshift init http://jobmanager:8081 --for standby\n"
    "stateshift init infore.json -o orders.yaml --yes",
    (2, 3, 4, 6, 7, 130),
    e0="the spec and its page are written, and `plan` can carry it out",
    e4="nothing is there to write it for; or it is written, and `plan` refuses it: why is said",
)
def init(
    terminal: Terminal,
    place: Annotated[
        str, argument("PLACE", "A checkpoint or savepoint, the URL of a Flink, or a spec.")
    ],
    goal: Annotated[str, option("--for", "GOAL", "move, standby, rebalance or drill.")] = "move",
    to: Annotated[str | None, option("--to", "LOCATION", "Where the image goes.")] = None,
    output: Annotated[
        str | None,
        option("--output -o", "FILE", "The spec: .json, .yaml or .yml. [NAME.json]"),
    ] = None,
    answers: Annotated[
        str | None, option("--answers", "FILE", "Answers by their keys, in JSON or YAML.")
    ] = None,
    waive: Waive = None,
    yes: Annotated[bool, flag("--yes -y", "Take the default of every other question.")] = False,
) -> int | None:
    """Write a spec to begin with.

    Looks at the place, asks what it cannot see there, and writes a spec, with a page beside it
    that explains its keys and names the next commands. YAML has the explanations as comments, too.
    A refusal that its plan can waive is asked about, never taken. No file is replaced.
    """
    from stateshift.api import init as begin
    from stateshift.api.doctor import hint_without_run
    from stateshift.api.local_files import write_new
    from stateshift.cli.views.text import Line
    from stateshift.documents.begin import InitDocument
    from stateshift.specification.written import SPEC_SUFFIXES, is_yaml

    adapters, chosen = terminal.adapters(), choice("--for", goal, begin.GOALS)
    try:
        found = begin.look(place, adapters)
    except StateshiftError as error:
        error.hint = hint_without_run(error)
        raise
    file = output or f"{re.sub(r'[^A-Za-z0-9_-]+', '-', found.name).strip('-') or 'orders'}.json"
    stem, suffix = os.path.splitext(file)
    if suffix.lower() not in SPEC_SUFFIXES:
        hint = _with_output(terminal, f"{stem}.yaml")
        raise SpecError.of("-o", f"{file} is no name of a spec", hint=hint)
    refuse_no_file("-o", file, "a spec", "orders.json")
    explanation = f"{stem}.md"
    for path in (file, explanation):
        if os.path.exists(path):
            hint = _with_output(terminal, f"{stem}-2{suffix}")
            raise PlanError(f"-o: {path} is there, and stays as it is", hint=hint)
    given = _answers(terminal, answers) | ({"to": to} if to is not None else {})
    waived = [*(waive or []), *names_in(given.pop("waive", ""))]
    terminal.hush()  # it may ask
    asked = list(begin.questions(found, chosen))
    said = _answered(terminal, asked, given, answers, yes)
    stay = os.path.dirname(os.path.abspath(file)) == os.getcwd()
    _put_in_full(said, terminal.profile, stay)
    if stay and _is_relative(place, found.place):
        found = replace(found, place=place)
    plain = begin.make_spec(found, chosen, said, waived)
    refused = _refusals(plain, file, adapters)
    can_ask = terminal.someone_there and not yes and found.spec is None
    answered = _waivers_confirmed(refused) if can_ask else []
    if answered:  # a plan that gets further may find more
        plain = begin.make_spec(found, chosen, said, [*waived, *answered])
        refused = _refusals(plain, file, adapters)
    refusals = [each.message for each in refused]
    text = begin.as_yaml(plain) if is_yaml(file) else begin.as_json(plain)
    write_new(file, text)
    flags = f" --profile {shlex.quote(terminal.profile.name)}" if terminal.profile else ""
    write_new(explanation, begin.page(found, chosen, plain, file, refused, flags))
    document: InitDocument = {
        "spec": file,
        "page": explanation,
        "goal": chosen,
        "found": list(found.facts),
        "refusals": refusals,
    }
    lines = [Line(f"{file} and {explanation} are written: {'; '.join(found.facts)}")]
    for each in refused:
        lines.append(Line(f"plan refuses it as it is: {each.message}", "warn"))
        if each.hint:
            lines.append(Line(f"hint: {each.hint}", indent=2))
    command = "plan" if refusals else "doctor"
    lines += [Line(f"next: stateshift {command} {shlex.quote(file)}{flags}")]
    terminal.answer("init", lambda: document, lines)
    return PlanError.exit_code if refusals else None


def _is_relative(typed: str, location: str) -> bool:
    """Whether a location was typed as a path below the current directory."""
    from stateshift.storage.locations import normal

    return not os.path.isabs(typed) and normal(os.path.join(os.getcwd(), typed)) == location


def _put_in_full(said: dict[str, str], profile: Profile | None, stay: bool) -> None:
    """Put locations among the answers in full; with `stay`, where the spec is in the current
    directory and so means the same paths, not those that were typed below it.
    """
    from stateshift.specification.key import Reader
    from stateshift.specification.location import Storages, normal
    from stateshift.specification.place import Complaints, Place
    from stateshift.specification.values import LOCATION

    complaints, storages = Complaints(), Storages(profile.storages if profile else {})
    reader = Reader(complaints, normal(os.getcwd()), storages=storages)
    for key in said.keys() & {"to", "savepoints", "images"}:
        location = reader.value(LOCATION("Where it is."), Place(said[key], key))
        if complaints.made or not stay or not _is_relative(said[key], location):
            said[key] = location
    if complaints.made:
        raise SpecError(tuple(complaints.made))


def _waivers_confirmed(refused: Sequence[Finding]) -> list[str]:
    """Ask of each refusal that can be waived whether that is so; return the waivers."""
    from stateshift.specification.model import WAIVERS

    confirmed = []
    for finding in refused:
        if finding.waive is None:
            continue
        words = (
            f"the plan refuses: {finding.message}\nIt goes on where this is so: "
            f"{WAIVERS[finding.waive]}\nIs it so? y writes {json.dumps(finding.waive)} into "
            '"waive" of the spec'
        )
        if typer.confirm(words, err=True):
            confirmed.append(finding.waive)
    return confirmed


def _with_output(terminal: Terminal, file: str) -> str:
    """Return the command as it was given, with another file for the spec."""
    words, before = list[str](), ""
    for word in terminal.arguments:
        is_flag = word in ("-o", "--output") or word.startswith(("-o=", "--output="))
        if not is_flag and before not in ("-o", "--output"):
            words.append(word)
        before = word
    return shlex.join(["stateshift", *words, "-o", file])


def _answers(terminal: Terminal, path: str | None) -> dict[str, str]:
    """Return the answers in a file, each a text."""
    from stateshift.api.local_files import text_of
    from stateshift.specification.written import read_yaml

    if path is None:
        return {}
    example = f'write {{"to": "s3://lake/orders"}} to {path}, with your answers; then: '
    example += terminal.again()
    try:
        text = text_of(path, example, "--answers")
    except SpecError as error:
        raise SpecError.of(
            "--answers", f"{path}: {error.complaints[0].message}", hint=example
        ) from error
    tree = read_yaml(text).tree  # JSON is YAML, too
    if isinstance(tree, dict) and all(isinstance(value, str) for value in tree.values()):
        return dict(tree)
    raise SpecError.of("--answers", f"{path} is no object of texts", hint=example)


def _answered(
    terminal: Terminal,
    asked: Sequence[Question],
    given: Mapping[str, str],
    file: str | None,
    yes: bool,
) -> dict[str, str]:
    """Return an answer to each question: given, typed, or its default; else say all that lack."""
    from stateshift.suggestion import did_you_mean

    keys = [question.key for question in asked]
    wrong = []
    for key in given.keys() - set(keys):
        fact = f"nothing is asked by the key {key!r}{did_you_mean(key, keys)}"
        wrong.append(Complaint(key, fact, None, f"one of {', '.join(keys)}" if keys else None))
    said = dict(given)
    for question in asked:
        can_ask = terminal.someone_there and not yes and not wrong
        if question.needs is not None and not said.get(question.needs):
            if said.get(question.key):
                fact = f"needs an answer to {question.needs!r}, too"
                wrong.append(Complaint(question.key, fact))
            continue
        is_optional = yes or question.needs is not None
        if question.key not in said and can_ask:
            said[question.key] = typer.prompt(question.words, question.default, err=True)
        elif question.key not in said and is_optional and question.default is not None:
            said[question.key] = question.default
        elif question.key not in said:
            default = "" if question.default is None else f" (--yes takes {question.default!r})"
            wrong.append(Complaint(question.key, f"not answered: {question.words}{default}"))
    if wrong:
        needed = [question.key for question in asked if question.default is None]
        lacking = [key for key in needed if key not in given]
        unknown = sorted(given.keys() - set(keys))
        hint = _way_to_answer(terminal, file, lacking, unknown)
        raise SpecError(tuple(wrong), hint=hint)
    return said


def _way_to_answer(
    terminal: Terminal, file: str | None, lacking: Sequence[str], unknown: Sequence[str]
) -> str:
    """Return the command that answers all: by flags, where they are enough, else by a file."""
    again = terminal.again("--yes")
    if file is None and list(lacking) == ["to"]:
        return terminal.again("--to", "LOCATION", "--yes")
    place, changes = file or "answers.json", []
    if unknown:
        changes.append(f"take {', '.join(unknown)} out of {place}")
    if lacking:
        example = json.dumps(dict.fromkeys(lacking, "..."))
        changes.append(f"write {example} to {place}, with your answers")
    if file is None and lacking:
        again = terminal.again("--answers", place, "--yes")
    return "; ".join([*changes, f"then: {again}"]) if changes else again


def _refusals(plain: Mapping[str, object], file: str, adapters: Adapters) -> Sequence[Finding]:
    """Return the findings that refuse the plan of a spec that is to stand in `file`."""
    from stateshift.api.requests import parse_text
    from stateshift.migration import propose
    from stateshift.workdir import Workdir

    spec = parse_text(json.dumps(plain), f"{os.path.splitext(file)[0]}.json")
    if spec.rebalance is not None:  # each of its moves is planned when it is due
        return ()
    return propose(spec, adapters, Workdir(os.path.join(WORKDIRS, "plan"))).refusals


@command(
    "stateshift doctor\nstateshift doctor orders.json\n"
    "stateshift doctor s3://bucket/checkpoints --profile dr --json",
    (2, 4, 130),
    e0="nothing fails; there may be warnings",
    e4="something fails: the way out is beside it",
)
def doctor(
    terminal: Terminal,
    places: Annotated[
        list[str] | None,
        argument("SPEC|LOCATION…", "A spec, or locations that runs write.", show_default=False),
    ] = None,
    workdirs: Workdirs = WORKDIRS,
) -> int | None:
    """Check that all is here that a run needs.

    Looks at packages, Java, the folder of workdirs; of a spec, locations or a profile, at the
    storages (list, read, exclusive create, delete, free space, clock), the clusters, their free
    slots or cores and memory, and the brokers. Rights are tried with one file whose name says what
    it is, and which is removed again. No engine reads it.
    """
    from stateshift.api.doctor import examine
    from stateshift.documents.shape import documents_of

    checks = []
    say, subjects = terminal.say, _subjects(places or [], terminal.profile)
    adapters = terminal.adapters()
    for check in examine(subjects, workdirs, adapters, lambda each: say(f"trying: {each}")):
        checks.append(check)
        if not terminal.json:
            terminal.show(_lines(check))
    if terminal.json:
        from stateshift.documents.begin import Check

        terminal.document("doctor", documents_of(Check, checks))
    failed = any(check.state == "fail" for check in checks)
    return PlanError.exit_code if failed else None


def _subjects(places: list[str], profile: Profile | None) -> Subjects:
    """Return the subjects that specs and locations name, or the profile in use."""
    from stateshift.api.doctor import Subjects
    from stateshift.api.requests import NAME_A_SPEC, spec_of
    from stateshift.specification.written import SPEC_SUFFIXES
    from stateshift.storage.locations import normal

    subjects = Subjects()
    for place in places:
        # A spec that is misspelled is no place where nothing is yet: a bare name that is not
        # there is taken for a spec.
        is_bare = "/" not in place and not os.path.exists(place)
        if is_bare or os.path.isfile(place) or place.lower().endswith(SPEC_SUFFIXES):
            hint = NAME_A_SPEC
            if not place.lower().endswith(SPEC_SUFFIXES):
                words = f"stateshift doctor ./{shlex.quote(place)}"
                hint = f"{NAME_A_SPEC}; of a location that is not there yet: {words}"
            subjects.add_spec(spec_of(place, hint))
        else:
            subjects.add_locations([normal(place, os.getcwd())], writes=True)
    if profile is not None and not places:
        subjects.add_locations(profile.storages.values(), writes=True)
        subjects.clusters |= {cluster.name: cluster for cluster in profile.cluster_specs}
    return subjects


def _lines(check: Check) -> Iterator[Line]:
    from stateshift.cli.views.text import Line
    from stateshift.storage.locations import redact

    about = f"{check.check:8}  {check.subject}: {check.fact}"
    yield Line(redact(f"{check.state:4}  {about}"), TONES[check.state])
    if check.hint is not None and check.state != "ok":
        yield Line(redact(f"hint: {check.hint}"), indent=6)
