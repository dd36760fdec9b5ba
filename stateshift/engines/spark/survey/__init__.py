"""The content of a checkpoint, read without a JVM: files, batches, operators, sources and sinks."""
