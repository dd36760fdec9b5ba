"""Findings of one kind are said once, with a count and the first place."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from stateshift.cli.views.findings_text import findings
from stateshift.cli.views.text import plain_text
from stateshift.survey import Finding
from tests.cli.support import SOURCE, Outside, said
from tests.flink.golden import ROOT as GOLDEN
from tests.support.checkpoints import Checkpoint, put


def shown(*found: Finding, verbose: bool = False) -> list[str]:
    return plain_text(findings(found, verbose)).splitlines()


def clear(number: int) -> Finding:
    return Finding(
        "warn",
        f"ck/{number}/offsets/0 holds 1,{number:03} bytes of 'query {number}': it is damaged",
        hint=f"stateshift verify ck/{number}",
    )


def test_sixty_findings_of_one_kind_are_one_line_and_a_count() -> None:
    assert shown(*map(clear, range(60))) == [
        "  warn: ck/0/offsets/0 holds 1,000 bytes of 'query 0': it is damaged",
        "    hint: stateshift verify ck/0",
        "    and 59 more like this: --verbose shows each",
    ]


def test_each_is_shown_where_it_is_asked_for_and_where_there_are_two() -> None:
    assert len(shown(*map(clear, range(60)), verbose=True)) == 120
    assert len(shown(clear(1), clear(2))) == 4


def test_kinds_are_kept_apart() -> None:
    other = Finding("warn", "ck/7/offsets/0 holds 1,007 bytes of 'query 7': it is empty")
    note = Finding("note", clear(3).message)
    lines = shown(note, *map(clear, range(3)), other)
    assert [line.split()[0] for line in lines] == ["warn:", "hint:", "and", "warn:", "note:"]


def test_findings_about_a_name_as_long_as_a_page_are_shown_at_once() -> None:
    name = "x" * 200_000  # where each letter was looked at from each letter, it took minutes
    lines = shown(*(Finding("warn", f"'{number}' names {name}") for number in range(3)))
    assert lines[1:] == ["    and 2 more like this: --verbose shows each"]


def test_refusals_that_need_different_things_done_are_all_shown() -> None:
    refused = [Finding("refuse", f"ck/{n} is busy", "busy", f"stop job {n}") for n in range(3)]
    assert len(shown(*refused)) == 9
    same = [Finding("refuse", f"ck/{n} is busy", "busy", "stop the job") for n in range(3)]
    assert shown(*same) == [
        "  refuse: ck/0 is busy",
        "    hint: stop the job",
        '    waive it in the job: "waive": ["busy"] (without a spec: --waive busy)',
        "    and 2 more like this: --verbose shows each",
    ]


def test_a_workflow_of_sixty_queries_says_once_what_holds_for_all() -> None:
    outside = Outside()
    for number in range(60):
        Checkpoint().write(outside.disk.open(f"{SOURCE}/{number}"))
        put(outside.disk.open(f"{SOURCE}/{number}"), "mine/a", b"x")
    brief = outside.run("verify", SOURCE).out
    assert brief.count("is no file of Spark's") == 1, brief
    assert "and 59 more like this" in brief
    assert outside.run("verify", SOURCE, "-v").out.count("is no file of Spark's") == 60


def test_a_run_that_a_hint_names_is_there_or_is_said_to_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fence tells the run; where its workdir lies, only who made it knows."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "source"
    shutil.copytree(GOLDEN / "spark-4.3.0/window-hdfs/checkpoint", source)
    made = said(
        "move",
        str(source),
        "--to",
        str(tmp_path / "target"),
        "--yes",
        "--waive",
        "job-stopped",
        "--waive",
        "paths-stay",
    )
    assert made.code == 0, made.err
    judged = said("verify", str(source))
    (named,) = re.findall(r"stateshift rollback (\S+)", judged.out + judged.err)
    assert said("status", named).code == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    judged = said("verify", str(source))
    assert "or its workdir, if it was begun elsewhere" in judged.out + judged.err


def test_a_waived_finding_keeps_the_fact_that_was_waived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "spark-4.3.0/window-hdfs/checkpoint", "source")
    told = said("move", "source", "--to", "target", "--yes", "--waive", "paths-stay")
    assert told.code == 0, told.err
    (waived,) = [line for line in told.err.splitlines() if "(waived: paths-stay)" in line]
    assert "5 of 5 are missing" in waived
