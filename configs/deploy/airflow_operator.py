"""An Airflow operator that carries out a spec. Copy it into your `plugins` or `dags` folder.

    StateshiftOperator(task_id="move-orders", spec="/etc/stateshift/orders.json",
                       workdir="/var/lib/stateshift/orders-{{ ds_nodash }}", retries=3)

A task that is tried again goes on with the run in its workdir, so the workdir has to be on a disk
that every worker sees. A task that is stopped can be resumed: the current write is finished first.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

from stateshift import api

try:
    from airflow.sdk import BaseOperator
    from airflow.sdk.exceptions import AirflowFailException
except ImportError:  # before Airflow 3.2
    from airflow.exceptions import AirflowFailException
    from airflow.models import BaseOperator

# A storage, a cluster, and an interruption: another attempt may succeed. Others need a person.
WORTH_ANOTHER_TRY = (6, 7, 130)


class StateshiftOperator(BaseOperator):  # type: ignore[misc]
    """Carries out a spec, or goes on with the run in its workdir. Returns the report."""

    template_fields: ClassVar[tuple[str, ...]] = ("spec", "workdir")

    def __init__(self, *, spec: str, workdir: str, **keys: Any) -> None:
        super().__init__(**keys)
        self.spec, self.workdir = spec, workdir
        self._stop: threading.Event | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run it to its end; fail for good where another attempt would change nothing."""
        self._stop = threading.Event()
        try:
            return self._carry_out(self._stop)
        except api.StateshiftError as error:
            if error.exit_code in WORTH_ANOTHER_TRY:
                raise
            hint = f" ({error.hint})" if error.hint else ""
            raise AirflowFailException(f"{error.fact}{hint}") from error

    def on_kill(self) -> None:
        """End the run after the current write."""
        if self._stop is not None:
            self._stop.set()

    def _carry_out(self, stop: threading.Event) -> dict[str, Any]:
        if (Path(self.workdir) / "journal").exists():
            return dict(api.resume(self.workdir, stop=stop).to_dict())
        return dict(api.apply(self.spec, workdir=self.workdir, stop=stop).to_dict())
