"""The same plans spread over Spark's executors, for state that outgrows one machine; or over
processes of this machine, so that all of its cores share the work.

    driver                                                     executor
    step ──encode_order──▶ order ──Carrier──▶ one Spark task ──▶ carry_out: opens the world,
                                                                 step.run(world)
    evidence, or the error ◀──decode_answer── answer ◀──────────────┘

    orders       orders and answers: JSON, and errors that are the same errors afterwards
    task         an executor's work on an order: it opens storages by location, and never a cluster
    crew         the fleet as the executor and `look` know it, opened for as long as something lasts
    carrier      a carrier takes orders out and answers back; those that are lost go out again
    cutting      cuts of a large shard into parts, and what is compared or checked in parts
    rewriting    a large shard rewritten in parts: its tables by several, then the zip
    comparing    `diff`: sums first, and then the entries that differ
    processes    the carrier of this machine: processes that are started anew, never forked
    worker       the program of such a process: order in, answer out, until nobody wants more
    spark        the carrier: one Spark application, one job of one task for each order
    masters      checks of a master before anything is started, and the meaning of its failures

The driver alone writes the journal and touches clusters; to Spark a step is one task, and results
come one by one. The plan is the same with and without a fleet, so are its evidence and the bytes it
leaves.
"""

from stateshift.fleet.carrier import Carrier, Lost
from stateshift.fleet.crew import Crew
from stateshift.fleet.masters import check_places, kind_of

__all__ = ["Carrier", "Crew", "Lost", "check_places", "kind_of"]
