"""The content of a savepoint or checkpoint, read without a JVM: files, operators, states."""
