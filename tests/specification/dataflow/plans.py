"""Plans as jobs tell them themselves, in the shapes of Flink's JsonPlanGenerator and Spark's
TreeNode.treeString.
"""

from __future__ import annotations

FLINK = """{"plan": {"jid": "f19a5f87b09115ed1d791fa88f84e676", "name": "fraud", "type": "STREAMING", "nodes": [
  {"id": "af009a75eaec1cf0bcc8ccfb8aa8d948", "parallelism": 1, "operator": "", "operator_strategy": "",
   "description": "Sink: alerts<br/>", "optimizer_properties": {},
   "inputs": [{"num": 0, "id": "2d0c882dd6e428e6726006ac8646a868", "ship_strategy": "REBALANCE",
               "exchange": "pipelined_bounded"}]},
  {"id": "2d0c882dd6e428e6726006ac8646a868", "parallelism": 4, "operator": "", "operator_strategy": "",
   "description": "Score<br/>+- Filter<br/>", "optimizer_properties": {},
   "inputs": [{"num": 0, "id": "7e50ce97058742b63bb0ceef1316eb8c", "ship_strategy": "HASH",
               "exchange": "pipelined_bounded"},
              {"num": 1, "id": "019ff6de1517d7ce1dc3950efee22026", "ship_strategy": "BROADCAST",
               "exchange": "pipelined_bounded"}]},
  {"id": "7e50ce97058742b63bb0ceef1316eb8c", "parallelism": 2, "operator": "", "operator_strategy": "",
   "description": "Source: payments -&gt; Map", "optimizer_properties": {}},
  {"id": "019ff6de1517d7ce1dc3950efee22026", "parallelism": 1, "operator": "", "operator_strategy": "",
   "description": "[7]:Source: rules", "optimizer_properties": {}},
  {"id": "bc764cd8ddf7a0cff126f51c16239658", "parallelism": 2, "operator": "", "operator_strategy": "",
   "description": "Sink: archive", "optimizer_properties": {},
   "inputs": [{"num": 0, "id": "7e50ce97058742b63bb0ceef1316eb8c", "ship_strategy": "FORWARD",
               "exchange": "pipelined_bounded"}]}]}}"""

SPARK = """== Parsed Logical Plan ==
'Aggregate ['shop], ['shop, count(1) AS count#22L]
+- StreamingRelationV2 org.apache.spark.sql.kafka010.KafkaSourceProvider@3f1a, kafka, [key#1, value#2]

== Physical Plan ==
WriteToDataSourceV2 org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite@61a581c0
+- *(4) HashAggregate(keys=[shop#7], functions=[count(1)], output=[shop#7, count#22L])
   +- StateStoreSave [shop#7], state info [ checkpoint = file:/c/state, runId = 2b, opId = 0, ver = 1], Update, 0, 2
      +- *(3) HashAggregate(keys=[shop#7], functions=[merge_count(1)], output=[shop#7, count#29L])
         +- StateStoreRestore [shop#7], state info [ checkpoint = file:/c/state, runId = 2b, opId = 0, ver = 1], 2
            +- *(2) HashAggregate(keys=[shop#7], functions=[merge_count(1)], output=[shop#7, count#29L])
               +- Exchange hashpartitioning(shop#7, 8), ENSURE_REQUIREMENTS, [plan_id=31]
                  +- *(1) HashAggregate(keys=[shop#7], functions=[partial_count(1)], output=[shop#7, count#29L])
                     +- *(1) Project [shop#7]
                        +- *(1) Generate explode(items#4), [shop#7], false, [item#9]
                           +- MicroBatchScan[key#1, value#2] KafkaV2[Subscribe[orders, returns]]
"""

SPARK_JOIN = """== Physical Plan ==
*(5) Project [window#190-T7200000ms, value#132L]
+- StreamingSymmetricHashJoin [value#132L], [value#198L], Inner, condition = [ both = null ], 0
   :- Exchange hashpartitioning(value#132L, 4), ENSURE_REQUIREMENTS, [id=#302]
   :  +- *(2) Project [value#132L]
   :     +- StreamingRelation rate, [timestamp#131, value#132L]
   +- Exchange hashpartitioning(value#198L, 4), ENSURE_REQUIREMENTS, [id=#309]
      +- *(4) Project [value#198L]
         +- StreamingRelation rate, [timestamp#197, value#198L]
"""
