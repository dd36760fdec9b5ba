"""What a plan says of a Spark job's move."""
