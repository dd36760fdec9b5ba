"""What we write ourselves and read again, possibly after somebody had a hand in it: specs, saved
plans, journals.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from stateshift import migration
from stateshift.errors import JournalError, PlanError, SpecError, StateshiftError
from stateshift.formats import marks
from stateshift.journal import Journal, decode_records, encode_record
from stateshift.plan import decode_plan, encode_plan
from stateshift.specification import parse_spec, to_plain_spec
from tests.fuzz.oracles import Broken, attempt, same
from tests.fuzz.targets import Target
from tests.support.steps import KeptLines

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"HOME": "/root", "A": "b"}


def run_spec(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        spec = parse_spec(text, base="/here", environment=ENVIRONMENT)
    except SpecError as error:
        if not error.complaints:
            raise Broken("a spec refused without a complaint") from error
        json.dumps(error.as_json())
        return
    same(
        parse_spec(json.dumps(to_plain_spec(spec)), base="/elsewhere"),
        spec,
        "a spec written and parsed",
    )


def run_plan(data: bytes) -> None:
    """A saved plan; behind a zero byte a single plan of a workdir, its fingerprint made right so
    that it is not the first thing to notice.
    """
    try:
        value = json.loads(data[1:] if data[:1] == b"\0" else data)
    except (ValueError, RecursionError):
        return
    try:
        if data[:1] == b"\0":
            plan = decode_plan(value)
            same(decode_plan(encode_plan(plan)), plan, "a plan there and back")
        else:
            migration.decode_proposal(value)
    except PlanError as error:
        if not error.hint:
            raise Broken("a plan refused without a hint") from error


def run_journal(data: bytes) -> None:
    """The bytes as a journal; behind a zero byte its records' JSON, one a line, with their
    checksums made right.
    """
    content = _summed(data[1:]) if data[:1] == b"\0" else data
    try:
        records, good = decode_records(content)
    except JournalError as error:
        if not error.hint:
            raise Broken("a journal refused without a hint") from error
        return
    same(0 <= good <= len(content), True, "how much of the journal is whole")
    same(
        decode_records(b"".join(map(encode_record, records)))[0], records, "records there and back"
    )
    try:
        Journal(KeptLines(content))
    except StateshiftError as error:
        if error.exit_code == 1:
            raise Broken(str(error)) from error


def run_index(data: bytes) -> None:
    """The index of operators, the marker that asks a job to stop, and the fence."""
    found = attempt(lambda: marks.decode_index(data), len(data))
    if found is not None:
        same(marks.decode_index(marks.encode_index(found)), found, "an index there and back")
    marks.asks_to_stop(data, "job", "tag", 5.0)
    marks.fence_owner(data)


def _summed(content: bytes) -> bytes:
    import zlib

    return b"".join(b"%08x %s\n" % (zlib.crc32(line), line) for line in content.split(b"\n"))


def _spec_seeds() -> list[bytes]:
    return [
        path.read_bytes()
        for folder in ("examples", "invalid")
        for path in (ROOT / "configs" / folder).glob("*.json")
        if not path.name.endswith("expected.json")
    ]


@cache
def _run() -> tuple[dict[str, Any], bytes]:
    """A saved plan and the journal of a run that went to its end."""
    import tempfile

    from tests.support.checkpoints import Checkpoint
    from tests.support.ground import Ground, spec_of

    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        ground.write(Checkpoint(batches=1, shards=1))
        proposal = ground.propose(spec_of())
        ground.apply(proposal)
        return migration.encode_proposal(proposal), (ground.workdir().path / "journal").read_bytes()


def _plan_seeds() -> list[bytes]:
    saved, _ = _run()
    return [
        json.dumps(saved).encode(),
        *(b"\0" + json.dumps(plan).encode() for plan in saved["plans"]),
    ]


def _journal_seeds() -> list[bytes]:
    lines = _run()[1].splitlines()
    bare = [line.partition(b" ")[2] for line in lines]
    return [
        _run()[1],
        b"\0" + b"\n".join(bare),
        *(b"\0" + b"\n".join(bare[:n]) for n in (1, 2, 3)),
        *(b"\0" + one for one in bare),
    ]


WORDS = (
    b'"version":1',
    b'"jobs":[',
    b'"engine":"spark"',
    b'"checkpoint_location":"',
    b"${HOME}",
    b"$${",
    b"null",
    b"{}",
    b"[]",
    b"1e999",
    b"NaN",
    b"\\ud800",
    b"\\u0000",
    b"s3a://u:p@h/",
    b'"kind":"',
    b'"steps":[',
)

TARGETS = (
    Target(
        "spec",
        run_spec,
        _spec_seeds,
        tuple(
            f"specification/{name}.py"
            for name in (
                "parse",
                "text",
                "values",
                "jobs",
                "job_keys",
                "spec_keys",
                "key",
                "checks",
                "location",
            )
        ),
        WORDS,
    ),
    Target(
        "plan",
        run_plan,
        _plan_seeds,
        ("plan.py", "plain.py", "migration/proposal.py"),
        WORDS,
        16 * 1024,
    ),
    Target(
        "journal",
        run_journal,
        _journal_seeds,
        ("journal/__init__.py", "journal/progress.py", "journal/records.py"),
        WORDS,
    ),
    Target(
        "marks",
        run_index,
        lambda: [
            marks.encode_index({"a": "b"}),
            marks.encode_stop("j", None, 7.0),
            marks.fence_text("run").encode(),
        ],
        ("formats/marks.py",),
        WORDS,
    ),
)
