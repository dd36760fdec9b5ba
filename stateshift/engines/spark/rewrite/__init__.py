"""How Spark's state is rewritten on its way."""
