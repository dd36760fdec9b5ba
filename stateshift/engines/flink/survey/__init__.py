"""What lies in a savepoint or checkpoint, read without a JVM: files, operators, states."""
