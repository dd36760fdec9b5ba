"""The frame of every plan, with the fingerprint of the facts that it is made from: it is held
against that before it is carried out.

    identity_of      everything that does not change while a job runs
    fingerprint_of   that, and every file and epoch of a job that has stopped
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from stateshift import plain
from stateshift.engines.spark import layout
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.survey.endpoints import plain_endpoints
from stateshift.formats.marks import FOLDER
from stateshift.plan import Phase, Plan
from stateshift.survey import Facts, FileInfo, Finding


def plan_of(move: Move, phases: tuple[Phase, ...], findings: tuple[Finding, ...] = ()) -> Plan:
    """Return a move plan of these phases."""
    positions = move.facts.positions
    return Plan(
        job=move.job.name,
        engine=layout.ENGINE,
        purpose="move",
        source=move.source,
        target=move.target if move.job.target else move.source,
        epoch=epoch_after(move),
        phases=phases,
        findings=findings,
        facts=fingerprint_of(move.facts),
        endpoints=plain_endpoints(move.facts),
        positions=tuple(chain.from_iterable(each.changes for each in positions)),
        brokers=tuple(chain.from_iterable(sorted(each.brokers.items()) for each in positions)),
    )


def epoch_after(move: Move) -> int | None:
    """Return the last batch's number at the target; None for a workflow."""
    source = move.facts.source
    return None if source.epoch is None else move.number_after(source.images[0])


def provisional(plan: Plan, facts: Facts) -> Plan:
    """Return the plan as one that holds only as long as the job is this one: it may write on."""
    return replace(plan, provisional=True, facts=identity_of(facts))


def identity_of(facts: Facts) -> str:
    """Return the fingerprint of a running job: its identity, and the layout of its state."""
    surveys = (facts.source, *facts.merges, *facts.others)
    others_files: list[FileInfo] = []
    if facts.target.location != facts.source.location:  # else they are the job's own
        at_target = facts.target.files
        others_files = [file for file in at_target if not file.path.startswith(f"{FOLDER}/")]
    clusters = (facts.source_cluster, facts.target_cluster)
    identities: list[plain.Value] = []
    for survey in surveys:
        images: list[plain.Value] = []
        for image in survey.images:
            operators = [[own.id, own.name, own.provider, own.shards] for own in image.operators]
            images.append([image.path, image.identity, image.written_by, operators])
        identities.append([survey.location, survey.kind, images])
    return plain.fingerprint(
        [
            identities,
            [facts.target.kind, len(others_files)],
            [None if cluster is None else cluster.version for cluster in clusters],
        ]
    )


def fingerprint_of(facts: Facts) -> str:
    """Return the fingerprint of a stopped job: every file of it, its epochs, and the last batches
    in the log of its sink. Places that move along are named only: new input may arrive in them at
    any time.
    """
    surveys = (facts.source, *facts.merges, *facts.others)
    contents: list[plain.Value] = []
    for survey in surveys:
        epochs = [[image.path, image.epoch, image.planned] for image in survey.images]
        contents.append([sorted(survey.files), epochs])
    places = [[here.location, there.location] for here, there in facts.data]
    parts: list[plain.Value] = [identity_of(facts), contents, places]
    if facts.sink is not None and facts.sink.read:
        # A rewind under new numbers goes by the last batch of each query.
        images, sink = facts.source.images, facts.sink
        parts.append([[image.path, sink.last_batch(image.identity)] for image in images])
    return plain.fingerprint(parts)
