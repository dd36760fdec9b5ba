"""What a run has copied without a sync, after its machine was started again.

The journal is on disk, and the files that it calls written may not be. As long as the machine runs
they are there, whichever process was killed. So a run that begins or goes on says in the journal
in which start of the machine (`boot`), and does not go on in another one.
"""

from __future__ import annotations

from shlex import quote

from stateshift.errors import StorageError
from stateshift.journal import BootNoted, Journal, PlanProgress, Progress
from stateshift.migration.adapters import Adapters
from stateshift.specification import Spec
from stateshift.specification.unsynced import unsynced_locations, unsynced_places
from stateshift.workdir import Workdir


def note_boot(journal: Journal, spec: Spec, adapters: Adapters) -> None:
    """Write down which start of the machine this is, where some of it is not synced."""
    if unsynced_locations(spec):
        journal.append(BootNoted(adapters.clock.now(), adapters.boot))


def refuse_lost_copies(progress: Progress, spec: Spec, boot: str, workdir: Workdir) -> None:
    """Refuse to go on with copies that a power cut may have damaged. `boot` is empty where the
    system does not say which start of the machine this is.
    """
    is_same_boot = boot != "" and boot == progress.boot
    if is_same_boot:
        return
    for job in spec.jobs:
        places = unsynced_places(spec, job)
        if places and any(map(_has_finished_steps, progress.plans_of((job.name,)))):
            since = "the machine was started again since, or is another one"
            if boot == "":
                since = "this system does not say whether the machine was started again since"
            raise StorageError(
                f"{job.name} was copied without sync, and {since}: files of the copy may be lost",
                location=places[0],
                hint="take the copy back, then begin again: "
                f"stateshift rollback {quote(str(workdir.path))}",
            )


def _has_finished_steps(plan: PlanProgress) -> bool:
    """Return whether the journal calls a step done. One that was only begun is repeated anyhow, and
    reads what it finds.
    """
    return any(step.state == "finished" for step in plan.steps.values())
