"""The files beside a standby's image (`formats.standby`): claims, of which the highest counts, by
whoever may write there; its state; the history of its drills. And the note at the primary that its
job runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from stateshift.errors import AlreadyThere, MissingFile, OtherRunError
from stateshift.formats.marks import FOLDER
from stateshift.formats.standby import (
    DRILLS,
    STATE,
    SUPERSEDED,
    Claim,
    Drill,
    DrillHistory,
    StandbyState,
    Superseded,
    Verb,
    claim_path,
    decode_claim,
    decode_drills,
    decode_state,
    decode_superseded,
    encode_claim,
    encode_drills,
    generation_of,
)
from stateshift.storage.protocol import Storage
from stateshift.terms import moment, terms_of

STATE_BYTES_MAX = 16 << 20
_VERBS: Mapping[Verb, str] = {
    "standby": "is fed by another standby",
    "failover": "was taken over by a failover",
    "failback": "is left by a failback",
    "returned": "was left by a failback",
}


def newest_claim(storage: Storage) -> Claim | None:
    """Return the claim that counts at a location; None where nobody has claimed it."""
    generations = [generation_of(file.path) for file in storage.list(FOLDER)]
    newest = max((each for each in generations if each is not None), default=None)
    if newest is None:
        return None
    path = claim_path(newest)
    return decode_claim(storage.read(path), path)


def state_at(storage: Storage) -> StandbyState | None:
    """Return the state of the standby at a location; None where there is none.

    Raises:
        FormatError: the state file is damaged, or of a version that is not known here.
    """
    try:
        return decode_state(storage.read(STATE, STATE_BYTES_MAX))
    except MissingFile:
        return None


def note_at_primary(storage: Storage, fences: Collection[str | None]) -> Superseded | None:
    """Return the note that the job of a place runs at its standby. It counts beside the fence of
    the same run: who has taken the image away from there has not taken the note.

    Raises:
        FormatError: the note is damaged, or of a version that is not known here.
    """
    if not any(fences):
        return None
    try:
        found = decode_superseded(storage.read(SUPERSEDED, STATE_BYTES_MAX))
    except MissingFile:
        return None
    return found if found.run in fences else None


def in_words(found: Superseded) -> str:
    """Return a note as a sentence."""
    terms = terms_of(found.engine)
    since = f"{found.job} runs at {found.successor} since {moment(found.at)}"
    fact = f"superseded: {since}, by the failover {found.run} on {found.host}"
    if found.epoch is not None:
        fact += f", from {terms.at} {found.epoch} on"
    if found.batches_ahead:
        many = terms.one if found.batches_ahead == 1 else terms.many
        fact += f"; {found.batches_ahead} {many} here are not part of it"
    return fact


def drills_at(storage: Storage) -> DrillHistory:
    """Return the drills of the standby at a location.

    Raises:
        FormatError: the history is damaged, or of a version that is not known here.
    """
    try:
        return decode_drills(storage.read(DRILLS, STATE_BYTES_MAX))
    except MissingFile:
        return DrillHistory()


def add_drill(storage: Storage, drill: Drill) -> None:
    """Write a drill into the history, once.

    Raises:
        FormatError: what is there is damaged, or of another version: it stays as it is.
    """
    content = encode_drills(drills_at(storage).with_drill(drill))
    storage.write(DRILLS, lambda: iter((content,)))
    storage.sync()


def claim(storage: Storage, wanted: Claim) -> Claim:
    """Claim a location. Claimed twice by one run, the first claim counts.

    Raises:
        OtherRunError: somebody else has this generation, or a higher one.
    """
    found = newest_claim(storage)
    if found is None or found.generation < wanted.generation:
        with suppress(AlreadyThere):
            storage.create(claim_path(wanted.generation), encode_claim(wanted))
        # Read again: not every storage creates exclusively.
        found = newest_claim(storage)
    if found is None or found.run != wanted.run:
        raise takeover_error(storage.location, found)
    return found


def note_epoch(storage: Storage, made: Claim, epoch: int | None) -> Claim:
    """Write into a claim of this run what the job is started from. Return the claim."""
    if epoch is None or made.epoch == epoch:
        return made
    noted = replace(made, epoch=epoch)
    storage.write(claim_path(made.generation), lambda: iter((encode_claim(noted),)))
    storage.sync()
    return noted


def refuse_another(storage: Storage, generation: int) -> None:
    """Refuse to write where somebody has claimed the generation behind this one."""
    if storage.stat(claim_path(generation + 1)) is not None:
        raise takeover_error(storage.location, newest_claim(storage))


def takeover_error(location: str, by: Claim | None) -> OtherRunError:
    """Return the error of whoever may write at a location no longer."""
    if by is None:
        return OtherRunError(f"{location} was claimed by another run")
    verb = _VERBS[by.verb]
    return OtherRunError(
        f"{location} {verb} since {moment(by.at)}: run {by.run} on {by.host} (generation "
        f"{by.generation}). Nothing more is written there",
        hint=f"stateshift status {by.workdir}   # on {by.host}",
    )


def give_back(storage: Storage, generation: int, run: str) -> None:
    """Remove a claim if it is this run's."""
    path = claim_path(generation)
    with suppress(MissingFile):
        if decode_claim(storage.read(path), path).run == run:
            storage.remove(path)
            storage.prune(FOLDER)
