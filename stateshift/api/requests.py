"""The requests of users: a spec, or a plan that was saved; as a value or as a local file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from shlex import quote

from stateshift.api.local_files import beside, text_of, write_whole
from stateshift.api.profiles import profile_in_use
from stateshift.errors import Complaint, PlanError, SpecError
from stateshift.extensions import names_added
from stateshift.migration import (
    Proposal,
    check_dataflow,
    decode_proposal,
    encode_proposal,
    refuse_rebalanced,
)
from stateshift.plain import JsonObject
from stateshift.specification import Spec, parse_spec
from stateshift.specification.text import read_json
from stateshift.specification.written import Written, add_places, is_yaml, read_yaml

NAME_A_SPEC = "name a spec (stateshift schema tells what it holds)"
NAME_A_SPEC_OR_PLAN = f"{NAME_A_SPEC} or a saved plan"

SpecLike = Spec | JsonObject | str | os.PathLike[str]


def request_of(given: SpecLike | Proposal, hint: str = NAME_A_SPEC_OR_PLAN) -> Spec | Proposal:
    """Return a spec or a plan from whatever form it was given in.

    A dictionary is a spec's, its relative paths are below the working directory. A string is the
    path of a file; `hint` says what could have been named, if that cannot be read.
    """
    if isinstance(given, Spec | Proposal):
        return given
    if isinstance(given, Mapping):
        return parse_text(json.dumps(given), os.path.join(os.getcwd(), "spec"))
    return read(os.fspath(given), hint)


def move_of(given: SpecLike | Proposal) -> Spec | Proposal:
    """Return a spec that says where its jobs go, or a plan.

    Raises:
        SpecError: it says between which clusters they may go; the hint is the command for that.
    """
    request = request_of(given)
    if isinstance(request, Spec) and isinstance(given, str | os.PathLike):
        refuse_rebalanced(request, os.fspath(given))
    return request


def spec_of(given: SpecLike, hint: str = NAME_A_SPEC) -> Spec:
    """Return a spec from whatever form it was given in; `hint` is as for `request_of`."""
    request = request_of(given, hint)
    if isinstance(request, Proposal):
        raise SpecError(
            (Complaint("", "a saved plan, and not a spec"),),
            hint="name the spec that it was made from",
        )
    return request


def read(path: str, hint: str = NAME_A_SPEC_OR_PLAN) -> Spec | Proposal:
    """Read a file. A saved plan says so in its first key; anything else is read as a spec.

    Its errors name the file.
    """
    try:
        if os.path.isdir(path):
            run = os.path.exists(os.path.join(path, "journal"))
            command = f"stateshift {'resume' if run else 'inspect'} {quote(path)}"
            raise SpecError((Complaint("", "a directory, and not a spec"),), hint=command)
        text = text_of(path, hint)
        plain: object = None
        # The spec's reader says better than we could what is wrong, and where.
        with suppress(ValueError, RecursionError):
            plain = json.loads(text)
        if isinstance(plain, dict) and "stateshift_plan" in plain:
            return decode_proposal(plain)
        with mistakes_placed(path, text):
            return parse_text(text, path)
    except (SpecError, PlanError) as error:
        error.where.setdefault("path", path)
        raise


@contextmanager
def mistakes_placed(path: str, text: str | None = None) -> Iterator[None]:
    """Let mistakes in a spec that are noticed now, or later on, name its file and their lines.
    Without its text it is read again, unless it is a pipe, which gives it once.
    """
    try:
        yield
    except SpecError as error:
        before = error.complaints
        if "path" not in error.where and (text is not None or os.path.isfile(path)):
            with suppress(SpecError):
                whole = text_of(path, "") if text is None else text
                error.complaints = add_places(before, whole, is_yaml(path))
        if error.complaints != before:
            error.where["path"] = path
        raise


def parse_text(text: str, path: str) -> Spec:
    """Return the spec that a text holds which stands at `path`, or could."""
    spec = in_profile(
        read_yaml(text) if is_yaml(path) else read_json(text),
        lambda written: parse_spec(
            written,
            base=os.path.dirname(os.path.abspath(path)),
            environment=os.environ,
            names_added=names_added,
            opened=beside(path),
        ),
    )
    check_dataflow(spec)
    return spec


def in_profile(written: Written, parse: Callable[[Written], Spec]) -> Spec:
    """Return the spec that `parse` makes of a text, with what the profile in use gives to it."""
    profile = profile_in_use()
    if profile is None:
        return parse(written)
    whole, given = profile.beneath(written)
    spec = parse(whole)
    used = [f"storage {name}" for name in whole.storages.used] if whole.storages else []
    return replace(spec, profile=replace(given, gave=(*used, *given.gave)))


def is_saved_plan(path: str) -> bool:
    """Whether a file begins as a saved plan does: another one may be saved in its place."""
    with suppress(OSError), open(path, "rb") as file:
        return b'"stateshift_plan"' in file.read(64)
    return False


def save(proposal: Proposal, path: str) -> None:
    """Write a plan to a file, whole or not at all: somebody may be about to apply what is there."""
    signed = proposal.signed
    document = encode_proposal(proposal) if signed is None else signed.document
    text = json.dumps(document, indent=1, ensure_ascii=False)
    write_whole(path, text + "\n")
