"""The part that a user's job imports: its checkpoint's location under the current spec, and its
stop between two batches.

    from stateshift import job

    query = counts.writeStream.option("checkpointLocation", job.checkpoint("Aggregate (5)")).start()
    job.run(query)

In production, `job.results("Aggregate (5)")` is a directory beside that, for what the operator puts
out; None otherwise.

A job that is to come up before the old one is stopped (`"prepare": true` of its `submit`) calls
`job.wait()` before its first query; at any other time that returns at once.

The same code runs before and after a move: the location comes from STATESHIFT_CHECKPOINT, which the
submitter of the job hands over, or else from the spec (an argument, or the file that
STATESHIFT_SPEC names), from the entry of the job's name: STATESHIFT_JOB, or an argument. Beside the
image, under `_stateshift`:

    operators.json  name -> directory, added to by `checkpoint`; what stands there is not hashed
                    again
    stop            the marker that `watch` looks for, written to stop the job
    stopping        the job's answer to it: a copy
    waiting         the answer of a job that was started early; `released`, written when its image
                    is there, ends that
    idle            in each query's own checkpoint: it is restored, and has nothing to read (only
                    with STATESHIFT_TAG)
    progress        in each query's own checkpoint: its last batches, for `stateshift advise`
                    (not if STATESHIFT_PROGRESS is false)

Importing this costs next to nothing: pyspark is imported by the functions that need it.
"""

from stateshift.job.places import checkpoint, location, results
from stateshift.job.queries import run, stop_requested, wait, watch

__all__ = ["checkpoint", "location", "results", "run", "stop_requested", "wait", "watch"]
