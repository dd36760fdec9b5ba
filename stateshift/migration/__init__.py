"""The calls everything else makes: gather, propose, apply, resume, roll back, status, verify.

spec ──gather──▶ facts ──engine.plan──▶ plans ──execute──▶ journal ──summarize──▶ report

doors        how the outside is reached
proposing    everything before a run: reads only
together     which jobs move together, and in which order
working      what a run at work is made of
brought      what earlier rounds have brought of a job that runs, and may still be counted on
helm         what is asked of a run from outside, heeded; and what it tells
looking      what is moved is read to its end before a job is stopped for it
draining     who reads what others write is stopped behind them, when it has read all
halting      jobs are stopped, or let go on
warming      rounds, until a job may be stopped
running      one run at work: its waves, forward and back
enlisting    a fleet, where one is asked for
calls        what can be asked of a run
"""

from stateshift.migration.calls import (
    Verdict,
    apply,
    progress_of,
    resume,
    rollback,
    spec_of,
    status,
    verify,
)
from stateshift.migration.doors import Doors, real_doors, world_of
from stateshift.migration.draining import reads_out
from stateshift.migration.enlisting import enlisted, places_of
from stateshift.migration.history import is_stopping
from stateshift.migration.proposing import (
    Proposal,
    decode_proposal,
    encode_proposal,
    gather,
    jobs_of,
    propose,
)
from stateshift.migration.together import cuts_of, waves, with_dataflow

__all__ = [
    "Doors",
    "Proposal",
    "Verdict",
    "apply",
    "cuts_of",
    "decode_proposal",
    "encode_proposal",
    "enlisted",
    "gather",
    "is_stopping",
    "jobs_of",
    "places_of",
    "progress_of",
    "propose",
    "reads_out",
    "real_doors",
    "resume",
    "rollback",
    "spec_of",
    "status",
    "verify",
    "waves",
    "with_dataflow",
    "world_of",
]
