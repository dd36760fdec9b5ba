"""Which state of a planned batch goes along with an image, and under which paths. Pure.

A batch that was planned and not committed is kept, so that it runs again at the target. A sink that
has it already does not run its plan, so that nobody writes its state again: see
`survey.restart.planned`. Copied, the state is there in that case; in the other one Spark overwrites
it, as it would in place.

    carried      changes that leave the files of one version as they are: a copy, `compact`,
                 `rename`, `drop`
    not carried  changes that would have to rewrite them: other partitions, provider, codec, rows,
                 keys
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stateshift.engines.bundles import bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.rewrite.wishes import Wishes, path_after, settings_after, wishes_of
from stateshift.specification import JobSpec
from stateshift.step import CopyFiles
from stateshift.survey import Facts, Image


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
        if kept_batch(job, image) is not None:
            paths.update(_paths(wishes, image))
    return paths


def _paths(wishes: Wishes, image: Image) -> Iterator[tuple[str, str]]:
    if image.planned_state is None or rewrites_versions(wishes, image):
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
