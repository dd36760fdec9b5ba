"""The sources of a job's input: what an image says of them, and what they still have.

kind             a kind of source, as a value
kinds            the kinds, and which of them an offset or a state is of; those of topics in
`topics`
kafka            the span of each partition, and records, asked of the brokers by the
`kafka-python` package (the extra `kafka`): an image does not know whether its
offsets are still there
topic_positions  new offsets for a source that reads on in other topics
translate        a place in a topic, found again by its records (pure)
"""
