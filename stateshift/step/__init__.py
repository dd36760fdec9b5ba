"""Steps: worthwhile units of journaled work, engine-neutral, each a frozen value.

kind            module      does
PrepareJob      jobs        start the target's application early: it waits for its image
StopJob         jobs        stop the job at a consistent epoch unless it is already stopped
TakeSavepoint   savepoints  let the engine write an image, and end the job with it if the spec says
                            so
TakeCheckpoint  savepoints  end the job with the last checkpoint that it keeps
ReadyFence      fences      write a fence's files beforehand
FenceSource     fences      make it impossible for a zombie of the old job to commit
LiftFence       fences      let the job go on where it was
ClaimTarget     take_over   claim a standby: who has fed it writes there no longer
FencePrimary    take_over   keep the primary of a standby from going on, as far as it answers
CopyFiles       files       stream a bundle of files
CopyInOrder     files       copy small files that have to appear one after the other
StageFiles      files       bring what makes the image visible, under other names
MoveFiles       files       rename a bundle within one file system
SetAside        files       move what is at a place out of the way, and back
WriteFile       files       write literal bytes
TransformShard  shards      feed files through a named pure transform
BringFiles      rounds      bring a bundle of files while the job runs
KeepBrought     rounds      keep of it what belongs to the image, and remove the rest
CompareImages   images      fold the entries of both images and compare
KeepOwners      owners      give the target's files to whom the source's belong
CommitOffsets   group_offsets  set the offsets of a consumer group where the job reads on
SubmitJob       starting    find the tag, else submit with it
AwaitProgress   starting    wait until the job restored from this image commits a batch
"""

from stateshift.step.fences import FenceSource, LiftFence, ReadyFence
from stateshift.step.files import (
    CopyFiles,
    CopyInOrder,
    MoveFiles,
    Rename,
    SetAside,
    StageFiles,
    WriteFile,
)
from stateshift.step.group_offsets import CommitOffsets
from stateshift.step.images import CompareImages
from stateshift.step.jobs import PrepareJob, StopJob
from stateshift.step.owners import KeepOwners
from stateshift.step.protocol import Discrepancy, Evidence, FileEvidence, Fleet, Step, places_filled
from stateshift.step.rounds import BringFiles, KeepBrought
from stateshift.step.savepoints import TakeCheckpoint, TakeSavepoint
from stateshift.step.shards import ROWS_CHECKED, Elsewhere, TransformShard
from stateshift.step.starting import AwaitProgress, EndedJob, SubmitJob
from stateshift.step.take_over import ClaimTarget, FencePrimary

AnyStep = (
    PrepareJob
    | StopJob
    | TakeSavepoint
    | TakeCheckpoint
    | ReadyFence
    | FenceSource
    | LiftFence
    | ClaimTarget
    | FencePrimary
    | CopyFiles
    | CopyInOrder
    | StageFiles
    | MoveFiles
    | SetAside
    | WriteFile
    | TransformShard
    | BringFiles
    | KeepBrought
    | CompareImages
    | KeepOwners
    | CommitOffsets
    | SubmitJob
    | AwaitProgress
)

__all__ = [
    "ROWS_CHECKED",
    "AnyStep",
    "AwaitProgress",
    "BringFiles",
    "ClaimTarget",
    "CommitOffsets",
    "CompareImages",
    "CopyFiles",
    "CopyInOrder",
    "Discrepancy",
    "Elsewhere",
    "EndedJob",
    "Evidence",
    "FencePrimary",
    "FenceSource",
    "FileEvidence",
    "Fleet",
    "KeepBrought",
    "KeepOwners",
    "LiftFence",
    "MoveFiles",
    "PrepareJob",
    "ReadyFence",
    "Rename",
    "SetAside",
    "StageFiles",
    "Step",
    "StopJob",
    "SubmitJob",
    "TakeCheckpoint",
    "TakeSavepoint",
    "TransformShard",
    "WriteFile",
    "places_filled",
]
