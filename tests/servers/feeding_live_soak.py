"""The records of a soak in a Kafka topic, in the servers' Python.

feeding_live_soak.py ADDRESS TOPIC make   makes the topic
feeding_live_soak.py ADDRESS TOPIC feed   sends each line of stdin, `PARTITION VALUE`, as it comes
feeding_live_soak.py ADDRESS TOPIC read   prints all records that there are, in the same way
"""

import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

PARTITIONS = 2
AT_ONCE = 10_000


def make(address: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])


def feed(address: str, topic: str) -> None:
    # One request at a time: a second try of an earlier one would break the order.
    producer = KafkaProducer(
        bootstrap_servers=address, acks="all", max_in_flight_requests_per_connection=1
    )
    for line in sys.stdin:
        partition, value = line.split(maxsplit=1)
        producer.send(topic, value.strip().encode(), partition=int(partition))
    producer.flush(60)


def read(address: str, topic: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    for number in range(PARTITIONS):
        partition = TopicPartition(topic, number)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            polled = consumer.poll(timeout_ms=1000, max_records=AT_ONCE)
            for record in polled.get(partition, ()):
                print(number, record.value.decode())


if __name__ == "__main__":
    {"make": make, "feed": feed, "read": read}[sys.argv[3]](*sys.argv[1:3])
