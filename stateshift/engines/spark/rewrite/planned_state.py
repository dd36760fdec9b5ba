"""Which state of a planned batch goes along with an image, and under which paths. Pure.

A batch that was planned and not committed is kept, so that it runs again at the target. A sink that
has it already does not run its plan, so that nobody writes its state again: see
`survey.restart.planned`. Copied, the state is there in that case; in the other one Spark overwrites
it, as it would in place.

    carried      changes that leave the files of one version as they are: a copy, `compact`,
                 `rename`, `drop`
    rewritten    `repartition` and `convert`, where the sink is known to have the batch: what is
                 made of it are snapshots, which Spark would prefer to the changes of a batch that
                 runs again
    not carried  changes that make other rows or keys, and the same two where nobody knows the sink
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from stateshift.engines.bundles import bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.rewrite.wishes import Wishes, path_after, settings_after, wishes_of
from stateshift.engines.spark.survey.planned_image import after_planned, planned_files
from stateshift.specification import JobSpec
from stateshift.step import CopyFiles
from stateshift.survey import Facts, Image

# Sinks that know batches by their numbers, whichever query wrote them.
BY_NUMBER = {"file": "A file sink", "foreach-batch": "A foreachBatch that drops what it has"}


def kept_batch(job: JobSpec, image: Image) -> int | None:
    """Return the batch that was planned and not committed, where the spec keeps it.

    It may have reached the sink already. Kept, it runs again over the same input, as after a
    restart in place: a sink that knows batches by number is given neither less nor more.
    """
    following = (image.epoch or 0) + 1
    return following if job.planned_batch == "keep" and image.planned == following else None


def rewrites_versions(wishes: Wishes, image: Image) -> bool:
    """Whether a change rewrites every version of the state, so that files of another version do
    not fit beside.
    """
    return any(
        (
            settings_after(wishes, image.settings),
            wishes.renumber,
            wishes.format_1,
            wishes.split,
            wishes.merge,
            wishes.evolve,
        )
    )


def is_skipped(job: JobSpec, facts: Facts, image: Image) -> bool:
    """Whether the sink is known to have the kept batch, and not to run it again: the state that it
    wrote is what the job goes on from.
    """
    batch = kept_batch(job, image)
    sink = facts.sink
    if batch is None or sink is None or not (job.moves or sink.kind in BY_NUMBER):
        return False
    return sink.skips(image.identity, batch)


def to_rewrite(job: JobSpec, facts: Facts, image: Image) -> Image | None:
    """Return the image as the planned batch has left it, where a change rewrites that, too: what
    is needed of it are the files that the batch has written.
    """
    wishes = wishes_of(job.transform)
    if not rewrites_versions(wishes, image) or not is_skipped(job, facts, image):
        return None
    makes_others = wishes.renumber or wishes.split or wishes.merge or wishes.evolve
    after = after_planned(image)
    if makes_others or wishes.in_place or after is None:
        return None
    return replace(after, needed=tuple(planned_files(image)))


def planned_paths(job: JobSpec, facts: Facts, images: Iterable[Image]) -> Mapping[str, str]:
    """Return the files to copy, by their path at the source: their path at the target.

    A job that runs writes them at this moment. What is copied of it is planned once more when it
    has stopped.
    """
    if facts.source_cluster is not None and facts.source_cluster.state in ("running", "queued"):
        return {}
    wishes = wishes_of(job.transform)
    paths: dict[str, str] = {}
    for image in images:
        if kept_batch(job, image) is not None and not rewrites_versions(wishes, image):
            paths.update(_paths(wishes, image))
    return paths


def _paths(wishes: Wishes, image: Image) -> Iterator[tuple[str, str]]:
    if image.planned_state is None:
        return
    start = len(image.path) + 1 if image.path else 0
    for path in image.planned_state.files:
        new = path_after(wishes, path[start:])
        if new is not None:
            yield path, layout.under(image.path, new)


def planned_copies(facts: Facts, paths: Mapping[str, str]) -> Iterator[CopyFiles]:
    """Yield the steps that copy files of a planned batch, to the paths given."""
    infos = {}
    for survey in (facts.source, *facts.merges):
        for file in survey.files:
            infos[file.path] = file
    files = [infos[path] for path in sorted(paths)]
    for number, bundle in enumerate(bundled(files)):
        yield CopyFiles(
            f"copy/planned-{number}",
            facts.source.location,
            facts.target.location,
            tuple(bundle),
            names=tuple(paths[file.path] for file in bundle),
            replaceable=True,
        )
