"""The journal of a run: records, one a line, and their fold.

records   one thing that happened, at one time
progress  everything a journal says so far; `advance(progress, record)` is the whole state machine
lines     the journal's bytes: appended so that each record is on disk before the next effect begins
"""

from stateshift.journal.lines import Journal, Lines, decode_records, encode_record, expect_ours
from stateshift.journal.progress import PlanProgress, Progress, State, StepProgress, advance, fold
from stateshift.journal.records import (
    BootNoted,
    ImageKept,
    LockReleased,
    LockTaken,
    OriginNoted,
    PlanAdopted,
    PlanFinished,
    PlanUndone,
    Record,
    RollbackRefused,
    RollbackStarted,
    RoundSeen,
    RpoJudged,
    RunFailed,
    RunFinished,
    RunResumed,
    RunRolledBack,
    RunStarted,
    SourceLost,
    Steered,
    StepFinished,
    StepStarted,
    StepUndone,
    WaveGivenUp,
)

__all__ = [
    "BootNoted",
    "ImageKept",
    "Journal",
    "Lines",
    "LockReleased",
    "LockTaken",
    "OriginNoted",
    "PlanAdopted",
    "PlanFinished",
    "PlanProgress",
    "PlanUndone",
    "Progress",
    "Record",
    "RollbackRefused",
    "RollbackStarted",
    "RoundSeen",
    "RpoJudged",
    "RunFailed",
    "RunFinished",
    "RunResumed",
    "RunRolledBack",
    "RunStarted",
    "SourceLost",
    "State",
    "Steered",
    "StepFinished",
    "StepProgress",
    "StepStarted",
    "StepUndone",
    "WaveGivenUp",
    "advance",
    "decode_records",
    "encode_record",
    "expect_ours",
    "fold",
]
