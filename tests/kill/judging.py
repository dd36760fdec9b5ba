"""How it must be in the end, whatever happened on the way: all moved, or all as before."""

from __future__ import annotations

from pathlib import Path

from stateshift import migration
from stateshift.workdir import Workdir
from tests.kill.process import Outcome
from tests.kill.scenario import Scenario, Tree, tree

WRITTEN_BY_THE_JOB = (
    "there/aggregate/offsets/2",
    "there/aggregate/commits/2",
    "there/join/commits/3",
)


def moved(scenario: Scenario, outcome: Outcome, expected: Tree, starts: int = 1) -> list[str]:
    """What is wrong with a run that was finished: nothing may differ from the one that nobody
    killed. `starts`: how often its job was to be started.
    """
    wrong = _state(scenario, outcome, "finished") + _differences(expected, tree(scenario.root))
    if scenario.events():
        wrong += _count("jobs submitted", scenario.submitted("there"), starts)
        wrong += _count("jobs running on the target", scenario.alive("there"), 1)
        wrong += _count("jobs running on the source", scenario.alive("flow"), 0)
    if scenario.flink is not None:
        wrong += _count("savepoints taken", len(list((scenario.root / "taken").iterdir())), 1)
    return wrong + _litter(scenario)


def as_before(scenario: Scenario, outcome: Outcome, starts: int = 1) -> list[str]:
    """What is wrong with a run that was taken back. What the job wrote itself is not ours to
    remove.
    """
    now = tree(scenario.root)
    kept = [path for path in now if path in WRITTEN_BY_THE_JOB]
    folders = {str(above) for path in kept for above in Path(path).parents if str(above) != "."}
    left = {
        path: content for path, content in now.items() if path not in kept and path not in folders
    }
    wrong = _state(scenario, outcome, "rolled-back") + _differences(tree(scenario.pristine), left)
    if scenario.events():
        submitted = scenario.submitted("there")
        wrong += [f"{submitted} jobs were submitted"] if submitted > starts else []
        wrong += _count("jobs running on the target", scenario.alive("there"), 0)
        wrong += _count("jobs running on the source", scenario.alive("flow"), 1)
    if kept and outcome.report is not None and not outcome.report.left:
        wrong.append("the report does not say what was left on the target")
    return wrong + _litter(scenario)


def _state(scenario: Scenario, outcome: Outcome, expected: str) -> list[str]:
    workdir = Workdir(scenario.workdir)
    if not workdir.exists:
        return [] if expected == "rolled-back" else ["there is no run"]
    state = migration.status(workdir).state
    fine = state == expected or (expected == "rolled-back" and state == "new")
    return ([] if fine else [f"the run is {state}: {outcome}"]) + (
        ["the workdir is held"] if workdir.held else []
    )


def _count(what: str, found: int, expected: int) -> list[str]:
    return [] if found == expected else [f"{what}: {found}, not {expected}"]


def _differences(expected: Tree, found: Tree) -> list[str]:
    wrong = [f"{path} is missing" for path in sorted(expected.keys() - found.keys())]
    wrong += [f"{path} is there" for path in sorted(found.keys() - expected.keys())]
    both = sorted(expected.keys() & found.keys())
    return wrong + [f"{path} differs" for path in both if expected[path] != found[path]]


def _litter(scenario: Scenario) -> list[str]:
    if not Workdir(scenario.workdir).exists:
        return []
    own = tree(Path(scenario.workdir), without=("clusters",))
    return [f"workdir/{path} is there" for path in own if path.endswith(".tmp")]
