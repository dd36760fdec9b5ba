"""Writes to a Kafka broker and reads from it, in the servers' Python: `asking_kafka.py ADDRESS
write|read`.
"""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

TOPIC, COUNT = "orders", 3
address, verb = sys.argv[1:]
if verb == "write":
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
    producer = KafkaProducer(bootstrap_servers=address)
    offsets = [producer.send(TOPIC, str(number).encode()).get(60).offset for number in range(COUNT)]
    print(json.dumps(offsets))
else:
    consumer = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    partition = TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    ends = consumer.end_offsets([partition])
    read = [next(consumer).value.decode() for _ in range(ends[partition])]
    print(json.dumps(read))
