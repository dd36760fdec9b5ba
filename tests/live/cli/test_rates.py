"""How fast queries were, and which version they ran when, as computed from what tasks wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stateshift.cli.views.text import plain_text
from stateshift.documents.live import LiveStatusDocument
from stateshift.documents.shape import document_of
from stateshift.live.cli import chains_text, page
from stateshift.live.folder import Seal, TaskMeasure, VersionRows, WorkerWord
from stateshift.live.proposals import GroupState
from stateshift.live.protocol.chains import (
    Decision,
    Declaration,
    KnownChange,
    Link,
    NewChain,
    ProposedChange,
    Reversal,
)
from stateshift.live.rates import (
    samples,
    stretches,
    version_of,
    version_that_ran,
)
from stateshift.live.survey import GroupSurvey


def known(
    number: int, *chains: str, outcome: str = "applied", is_reverted: bool = False
) -> KnownChange:
    links = (Link("a" * 64, "m:f"),)
    change = ProposedChange(
        "g", number, "replace", {name: NewChain(links) for name in chains}, 0.0, 60.0
    )
    decided = Decision("applied" if outcome == "applied" else "aborted", 1.0, "me")
    error = Reversal("score", "q", "run", 0, "error", 2.0) if is_reverted else None
    return KnownChange(change, decided, error)


def task(
    batch: int, began: float, *ran: VersionRows, partition: int = 0, seconds: float = 1.0
) -> TaskMeasure:
    rows = sum(part.rows for part in ran)
    return TaskMeasure("score", "q", batch, partition, began, began + seconds, rows, rows // 2, ran)


def survey(
    measures: Iterable[TaskMeasure],
    changes: tuple[KnownChange, ...] = (),
    seals: Mapping[int, float] | None = None,
    workers: int = 1,
) -> GroupSurvey:
    declaration = Declaration("score", ("m:f",), ("a" * 64,), "schema", "3.11", "26")
    said = tuple(
        WorkerWord("score", "q", number, "registered", 0.0, 0, "h", 1) for number in range(workers)
    )
    now = GroupState("g", {"score": declaration}, changes, said, {}, {}, {})
    sealed = {batch: Seal(0, at) for batch, at in (seals or {}).items()}
    return GroupSurvey("memory://g", 0.0, now, (), tuple(measures), {"q": sealed})


def ran(found: GroupSurvey) -> list[tuple[int, float, float]]:
    return [(each.version, each.start, each.end) for each in stretches(found, "score", "q")]


def test_a_version_of_a_chain_is_the_newest_change_of_it_that_holds() -> None:
    changes = (
        known(1, "score"),
        known(2, "clean"),
        known(3, "score", outcome="aborted"),
        known(4, "score", is_reverted=True),
    )
    assert [version_of(changes, "score", number) for number in range(5)] == [0, 1, 1, 1, 1]
    assert [version_of(changes, "clean", number) for number in range(5)] == [0, 0, 2, 2, 2]
    assert version_that_ran(changes, "score", 4) == 4
    assert version_that_ran(changes, "clean", 4) == 2


def test_batches_of_one_version_are_one_stretch_until_another_one_ran() -> None:
    changes = (known(1, "score"), known(2, "score"))
    versions = (0, 0, 1, 1, 2, 1)
    tasks = [
        task(batch, 2.0 * batch, VersionRows(version, 9)) for batch, version in enumerate(versions)
    ]
    assert ran(survey(tasks, changes)) == [(0, 0, 3), (1, 4, 7), (2, 8, 9), (1, 10, 11)]


def test_a_task_that_ran_two_versions_is_divided_by_its_rows() -> None:
    found = survey(
        [
            task(0, 0.0, VersionRows(0, 30), VersionRows(1, 10)),
            task(0, 0.0, VersionRows(0, 8), partition=1),
        ]
    )
    assert ran(survey(found.measures, (known(1, "score"),))) == [(0, 0, 1), (1, 0.75, 1)]


def test_a_query_of_which_nothing_is_known_for_long_did_not_run() -> None:
    tasks = [
        task(0, 0.0, VersionRows(0, 9)),
        task(1, 30.0, VersionRows(0, 9)),
        task(2, 500.0, VersionRows(0, 9)),
    ]
    assert ran(survey(tasks)) == [(0, 0, 31), (0, 500, 501)]


def test_rows_a_second_are_those_of_all_tasks_from_a_batch_to_the_next() -> None:
    found = survey(
        [task(0, 0.1, VersionRows(0, 10)), task(1, 2.1, VersionRows(0, 10))],
        (),
        {0: 0.0, 1: 2.0},
        4,
    )
    first, last = samples(found)
    assert (first.rows_in_per_second, first.rows_out_per_second) == (20, 10)
    assert (first.seconds_mean, first.versions) == (1, (0,))
    assert last.rows_in_per_second is None, "the batch after it has not begun"


def test_a_batch_without_rows_ran_the_version_that_it_began_with() -> None:
    (sample,) = samples(survey([task(0, 0.0)], (), {0: 0.0, 1: 2.0}))
    assert (sample.rows_in_per_second, sample.versions) == (0, (0,))


def test_a_location_is_shown_without_its_credentials() -> None:
    found = replace(survey([]), location="hdfs://me:secret@there/live")
    shown = plain_text(chains_text.status(found))
    shown_page = page.page(found)
    history = plain_text(chains_text.history(found.location, ()))
    for text in (
        shown,
        shown_page,
        history,
        str(document_of(LiveStatusDocument, found, page=None)),
    ):
        assert "secret" not in text and "there/live" in text
