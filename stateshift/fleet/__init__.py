"""The same plans spread over Spark's executors, for state that outgrows one machine; or over
processes of this machine, so that all of its cores share the work.

    driver                                                     executor
    step ──encode_order──▶ order ──Carrier──▶ one Spark task ──▶ carry_out: opens the world,
                                                                 step.run(world)
    evidence, or the error ◀──decode_answer── answer ◀──────────────┘

    orders       what goes out and what comes back: JSON, and errors that are the same errors
                 afterwards
    task         what an executor does with an order: it opens storages by location, and never a
                 cluster
    crew         the fleet as the executor and `look` know it: repeats what was lost with an
                 executor, says what goes on
    asking       how many orders at once, and again those that were lost
    carrier      the interface of what carries orders out and answers back
    parts        a comparison of entries in parts
    cutting      how far a large shard is cut into parts, which several read
    rewriting    a large shard rewritten in parts: its tables by several, then the zip
    redistributing  HDFS-backed shards that become others: who reads some, who writes some
    checking     `verify --deep`: portions of an image, and parts of shards
    comparing    `diff`: sums first, and then what differs
    ending       how a Spark job ended, by its message
    processes    the carrier of this machine: processes that are started anew, never forked
    worker       what such a process does: order in, answer out, until nobody wants more
    spark        the carrier: one Spark application, one job of one task for each order
    application  its JVM started, its context made, and let go
    package      our own package as a zip, so that executors need no installation of it
    opening      a fleet for as long as something lasts
    masters      what is known of a master and of locations before anything is started

The driver alone writes the journal and touches clusters; to Spark a step is one task, and results
come one by one. The plan is the same with and without a fleet, so are its evidence and the bytes it
leaves.
"""

from stateshift.fleet.carrier import Carrier, Lost
from stateshift.fleet.crew import Crew
from stateshift.fleet.masters import check_places, kind_of

__all__ = ["Carrier", "Crew", "Lost", "check_places", "kind_of"]
