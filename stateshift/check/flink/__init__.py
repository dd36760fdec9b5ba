"""Flink's part of a check: the capture of a file's jobs, and the rules of Flink."""
