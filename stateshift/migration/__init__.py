"""The calls everything else makes: gather, propose, apply, resume, roll back, status, verify.

spec ──gather──▶ facts ──engine.plan──▶ plans ──execute──▶ journal ──summarize──▶ report

before a run
  adapters            storages, clusters and brokers: the way to the outside
  gathering           the facts that a plan is computed from: reads only
  cluster_facts       what clusters say of themselves and of a job
  proposal            the plans that `plan` prints and `apply` executes: a value, to JSON and back
  wave_order          which jobs move together, and in which order
  source_check        what is moved is read to its end before a job is stopped for it
  trials              the start of a job, tried before the old one is stopped
  one_cut             the epochs at which several jobs start from their standbys
  submit_corrections  a resume with another `submit`
  fleet_session       a fleet, where one is asked for
  processes           this machine's cores, where none is

a run at work
  calls               apply, resume, rollback, status: a run carries out its waves in order
  context, plan_book  what every part of a run is given; its plans, saved and read again
  stages              what a wave goes through, a stage a function
  outcomes            what becomes of the other jobs when one fails: a pure table, and the hint
  aftermath           the same, carried out
  history             what the journal says of a job: pure
  observation         what is there now, behind the rounds that were made
  halts, backlog      the plans that stop jobs; who reads topics is stopped when it has read all
  warm_rounds         rounds, until a job may be stopped
  round_choice        what is done next with them: pure
  arrivals            what earlier rounds have copied, and may still be counted on
  round_compaction    many rounds as one
  target_locks        the locks on the targets
  rehearsal           a drill: the start of a standby, thrown away
  way_back            the way back, of a run or of one wave
  rollback_checks     what keeps jobs from being taken back
  notifications       which events are told to whom the spec names
  telemetry           a run for the collectors that the environment names, bounded in time
  otel, lineage       its records and figures for OpenTelemetry; its jobs as events of OpenLineage
  verification        verify: evidence that still holds, and files of others at a target
  run_control         its status for people who watch, and their requests: cutover, pause, stop

Each module is imported when something of it is first asked for: to plan waits for nothing that
carries plans out.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateshift.migration.adapters import (
        Adapters,
        impatient,
        no_policies,
        real_adapters,
        with_second_try,
        world_of,
    )
    from stateshift.migration.backlog import reads_out
    from stateshift.migration.calls import (
        apply,
        check_rollback,
        note_command,
        note_running,
        progress_of,
        resume,
        rollback,
        spec_of,
        status,
    )
    from stateshift.migration.fleet_session import open_fleet, open_processes, places_of
    from stateshift.migration.gathering import Inquiry, gather
    from stateshift.migration.history import is_stopping
    from stateshift.migration.policy import (
        keep_policies,
        keep_policies_of_group,
        read_rules,
        trusted_keys,
        with_breach,
    )
    from stateshift.migration.processes import processes_for
    from stateshift.migration.proposal import (
        Proposal,
        decode_proposal,
        encode_proposal,
        jobs_of,
        propose,
        refuse_rebalanced,
    )
    from stateshift.migration.signature import sign_plan
    from stateshift.migration.verification import Verdict, verify
    from stateshift.migration.wave_order import check_dataflow, cuts_of, waves

__all__ = [
    "Adapters",
    "Inquiry",
    "Proposal",
    "Verdict",
    "apply",
    "check_dataflow",
    "check_rollback",
    "cuts_of",
    "decode_proposal",
    "encode_proposal",
    "gather",
    "impatient",
    "is_stopping",
    "jobs_of",
    "keep_policies",
    "keep_policies_of_group",
    "no_policies",
    "note_command",
    "note_running",
    "open_fleet",
    "open_processes",
    "places_of",
    "processes_for",
    "progress_of",
    "propose",
    "read_rules",
    "reads_out",
    "real_adapters",
    "refuse_rebalanced",
    "resume",
    "rollback",
    "sign_plan",
    "spec_of",
    "status",
    "trusted_keys",
    "verify",
    "waves",
    "with_breach",
    "with_second_try",
    "world_of",
]

_HOMES = {
    "adapters": "Adapters impatient no_policies real_adapters with_second_try world_of",
    "backlog": "reads_out",
    "calls": "apply check_rollback note_command note_running progress_of resume rollback "
    "spec_of status",
    "fleet_session": "open_fleet open_processes places_of",
    "gathering": "Inquiry gather",
    "history": "is_stopping",
    "policy": "keep_policies keep_policies_of_group read_rules trusted_keys with_breach",
    "processes": "processes_for",
    "proposal": "Proposal decode_proposal encode_proposal jobs_of propose refuse_rebalanced",
    "signature": "sign_plan",
    "verification": "Verdict verify",
    "wave_order": "check_dataflow cuts_of waves",
}


def __getattr__(name: str) -> object:
    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
