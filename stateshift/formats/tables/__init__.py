"""Formats of tables that streaming jobs write and read, as far as they tell of batches."""
