"""Gives records to a Kafka broker, in the servers' Python: `feeding_kafka.py ADDRESS FILE`.

FILE has a line of JSON for each step: a list of [topic, key, value]. A step is with the broker as a
whole before the next begins, so that no partition runs ahead of another. Topics are made when they
are first needed.
"""

import json
import sys
from pathlib import Path

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

PARTITIONS = 2
address, file = sys.argv[1:]
steps = [json.loads(line) for line in Path(file).read_text().splitlines()]

admin = KafkaAdminClient(bootstrap_servers=address)
missing = {topic for step in steps for topic, _, _ in step} - set(admin.list_topics())
if missing:
    admin.create_topics(
        [
            NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)
            for topic in sorted(missing)
        ]
    )
producer = KafkaProducer(bootstrap_servers=address, acks="all")
for step in steps:
    told = [producer.send(topic, value.encode(), key=key.encode()) for topic, key, value in step]
    for one in told:
        one.get(60)
