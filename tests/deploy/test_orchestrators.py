"""The Airflow operator and the Dagster op, in a real Airflow and a real Dagster.

Each has an environment of its own, since both pin much of what they need. It is made by uv or pip
once, in the user's cache directory ($STATESHIFT_ORCHESTRATORS says another place).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from stateshift.storage.local.storage import LocalStorage
from tests.support.checkpoints import Checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(
    os.environ.get("STATESHIFT_ORCHESTRATORS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stateshift/orchestrators"
)


def python_with(package: str) -> Path:
    """Return the Python of an environment that has a package, and what stateshift needs."""
    place = CACHE / package
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", package, str(ROOT)]
        subprocess.run(install, check=True)
        # The package itself is read from the checkout.
        subprocess.run([python, "-m", "pip", "uninstall", "-qy", "stateshift"], check=True)
        (place / "complete").touch()
    return python


def run(python: Path, folder: Path, *words: str) -> str:
    """Run a program in an environment, and return the last line that it prints."""
    done = subprocess.run(
        [python, *words],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if "COVERAGE" not in name},
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'configs' / 'deploy'}",
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "DAGSTER_HOME": str(folder),
            "DAGSTER_DISABLE_TELEMETRY": "yes",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.strip().rpartition("\n")[2]


def moved_by(python: Path, program: str, folder: Path, spec: Path) -> Any:
    """Return what a program says that moves a spec's job."""
    return json.loads(run(python, folder, "-c", program, str(spec), str(folder / "run")))


def spec_in(folder: Path, waive: tuple[str, ...] = ("paths-stay",)) -> Path:
    Checkpoint(inputs=f"file://{folder}/in").write(LocalStorage(f"file://{folder}/orders"))
    job = {"name": "orders", "checkpoint_location": "orders", "remote_location": "moved/orders"}
    spec = {"version": 1, "engine": "spark", "jobs": [{**job, "waive": list(waive)}]}
    (folder / "orders.json").write_text(json.dumps(spec))
    return folder / "orders.json"


AIRFLOW = """
import json, sys
from airflow_operator import AirflowFailException, StateshiftOperator

spec, workdir = sys.argv[1:]
operator = StateshiftOperator(task_id="move-orders", spec=spec, workdir=workdir)
try:
    reports = [operator.execute({}) for _ in range(2)]
except AirflowFailException as error:
    print(json.dumps({"failed": str(error)}))
else:
    print(json.dumps({"states": [r["state"] for r in reports], "runs": [r["run"] for r in reports]}))
"""

STOPPED = """
import json, sys
from airflow_operator import StateshiftOperator
from stateshift.errors import Interrupted

class Stopped(StateshiftOperator):
    def _carry_out(self, stop):
        self.on_kill()
        return super()._carry_out(stop)

spec, workdir = sys.argv[1:]
try:
    Stopped(task_id="move-orders", spec=spec, workdir=workdir).execute({})
except Interrupted as error:
    code = error.exit_code
again = StateshiftOperator(task_id="move-orders", spec=spec, workdir=workdir)
print(json.dumps([code, again.execute({})["state"]]))
"""

DAG = """
import datetime
from pathlib import Path
from airflow_operator import StateshiftOperator
try:
    from airflow.sdk import DAG
except ImportError:
    from airflow import DAG

HERE = Path(__file__).resolve().parents[1]
with DAG("moves", schedule=None, start_date=datetime.datetime(2026, 1, 1)):
    StateshiftOperator(
        task_id="move", spec=f"{HERE}/orders.json", workdir=f"{HERE}/run-{{{{ ds_nodash }}}}"
    )
"""

DAGSTER = """
import json, sys
from dagster import job
from dagster_op import stateshift_run

@job
def move_orders():
    stateshift_run()

spec, workdir = sys.argv[1:]
config = {"ops": {"stateshift_run": {"config": {"spec": spec, "workdir": workdir}}}}
said = []
for _ in range(2):
    done = move_orders.execute_in_process(run_config=config, raise_on_error=False)
    if done.success:
        said.append(done.output_for_node("stateshift_run")["state"])
    else:
        failure = done.failure_data_for_node("stateshift_run").user_failure_data
        said.append(failure.description)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def airflow() -> Path:
    return python_with("apache-airflow")


@pytest.fixture(scope="module")
def dagster() -> Path:
    return python_with("dagster")


@pytest.mark.row("W-13", on="Airflow")
def test_the_operator_moves_and_a_second_attempt_goes_on_with_the_same_run(
    airflow: Path, tmp_path: Path
) -> None:
    spec = spec_in(tmp_path)
    said = moved_by(airflow, AIRFLOW, tmp_path, spec)
    assert said["states"] == ["finished", "finished"]
    assert len(set(said["runs"])) == 1
    assert (tmp_path / "moved" / "orders" / "metadata").exists()


def test_the_operator_fails_for_good_where_another_attempt_changes_nothing(
    airflow: Path, tmp_path: Path
) -> None:
    spec = spec_in(tmp_path, waive=())
    said = moved_by(airflow, AIRFLOW, tmp_path, spec)
    assert "paths" in said["failed"]


def test_a_task_that_is_stopped_goes_on_when_it_is_tried_again(
    airflow: Path, tmp_path: Path
) -> None:
    spec = spec_in(tmp_path)
    said = moved_by(airflow, STOPPED, tmp_path, spec)
    assert said == [130, "finished"]


def test_the_operator_runs_in_a_dag_with_a_workdir_of_the_day(
    airflow: Path, tmp_path: Path
) -> None:
    spec_in(tmp_path)
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "moves.py").write_text(DAG)
    run(airflow, tmp_path, "-m", "airflow", "db", "migrate")
    run(airflow, tmp_path, "-m", "airflow", "dags", "reserialize")
    run(airflow, tmp_path, "-m", "airflow", "dags", "test", "moves", "2026-01-01")
    assert (tmp_path / "run-20260101" / "journal").exists()


@pytest.mark.row("W-13", on="Dagster")
def test_the_op_moves_and_a_second_attempt_goes_on_with_the_same_run(
    dagster: Path, tmp_path: Path
) -> None:
    spec = spec_in(tmp_path)
    said = moved_by(dagster, DAGSTER, tmp_path, spec)
    assert said == ["finished", "finished"]


def test_the_op_fails_with_the_fact_of_the_error(dagster: Path, tmp_path: Path) -> None:
    spec = spec_in(tmp_path, waive=())
    said = moved_by(dagster, DAGSTER, tmp_path, spec)
    assert all("names 3 files" in each for each in said)
