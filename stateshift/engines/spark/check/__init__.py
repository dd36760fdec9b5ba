"""Whether an image of Spark is sound, file by file."""
