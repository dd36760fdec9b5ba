"""What a plan is held against before it is carried out: a fingerprint of the facts that it was made
from.

    identity_of      what does not change while a job runs
    fingerprint_of   that, and every file and epoch of a job that has stopped
"""

from __future__ import annotations

from stateshift import plain
from stateshift.formats.marks import FOLDER
from stateshift.survey import ClusterFacts, Facts, Image, SinkFacts, Survey


def identity_of(facts: Facts) -> str:
    """Return the fingerprint of what does not change while a job runs: who it is and how its state
    is laid out.
    """
    surveys = (facts.source, *facts.merges, *facts.others)
    others_files = [file for file in facts.target.files if not file.path.startswith(f"{FOLDER}/")]
    clusters = (facts.source_cluster, facts.target_cluster)
    return plain.fingerprint(
        [
            [_identity(survey) for survey in surveys],
            [facts.target.kind, len(others_files)],
            [_version(cluster) for cluster in clusters],
        ]
    )


def fingerprint_of(facts: Facts) -> str:
    """Return the fingerprint of a stopped job: every file of it, its epochs, and the last batches
    in the log of its sink. Places that move along are named only: new input may arrive in them at
    any time.
    """
    surveys = (facts.source, *facts.merges, *facts.others)
    parts: list[plain.Value] = [
        identity_of(facts),
        [_contents(survey) for survey in surveys],
        [[here.location, there.location] for here, there in facts.data],
    ]
    if facts.sink is not None and facts.sink.read:
        parts.append(_last_batches(facts.sink, facts.source))
    return plain.fingerprint(parts)


def _last_batches(sink: SinkFacts, source: Survey) -> list[plain.Value]:
    """Return what a rewind under new numbers goes by: the last batch of each query."""
    return [[image.path, sink.last_batch(image.identity)] for image in source.images]


def _identity(survey: Survey) -> list[object]:
    return [survey.location, survey.kind, [_identity_of_image(image) for image in survey.images]]


def _identity_of_image(image: Image) -> list[object]:
    operators = [[each.id, each.name, each.provider, each.shards] for each in image.operators]
    return [image.path, image.identity, image.written_by, operators]


def _contents(survey: Survey) -> list[object]:
    epochs = [[image.path, image.epoch, image.planned] for image in survey.images]
    return [sorted(survey.files), epochs]


def _version(cluster: ClusterFacts | None) -> str | None:
    return None if cluster is None else cluster.version
