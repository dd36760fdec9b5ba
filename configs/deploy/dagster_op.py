"""A Dagster op that carries out a spec. Import it into your code location.

    @job(op_retry_policy=RetryPolicy(max_retries=3, delay=60))
    def move_orders(): stateshift_run()

    move_orders.execute_in_process(run_config={"ops": {"stateshift_run": {"config": {
        "spec": "/etc/stateshift/orders.json", "workdir": "/var/lib/stateshift/orders"}}}})

An op that is tried again goes on with the run in its workdir.
"""

from pathlib import Path
from typing import Any

from dagster import Failure, OpExecutionContext, op

from stateshift import api

# A storage, a cluster, and an interruption: another attempt may succeed. Others need a person.
WORTH_ANOTHER_TRY = (6, 7, 130)


@op(config_schema={"spec": str, "workdir": str})
def stateshift_run(context: OpExecutionContext) -> dict[str, Any]:
    """Carry out a spec, or go on with the run in its workdir. Return the report."""
    try:
        report = _carry_out(context.op_config["spec"], context.op_config["workdir"])
    except api.StateshiftError as error:
        worth_it = error.exit_code in WORTH_ANOTHER_TRY
        raise Failure(
            description=error.fact,
            metadata={"hint": error.hint or "", "exit_code": error.exit_code},
            allow_retries=worth_it,
        ) from error
    context.add_output_metadata({"state": report["state"], "workdir": report["workdir"]})
    return report


def _carry_out(spec: str, workdir: str) -> dict[str, Any]:
    if (Path(workdir) / "journal").exists():
        return dict(api.resume(workdir).to_dict())
    return dict(api.apply(spec, workdir=workdir).to_dict())
