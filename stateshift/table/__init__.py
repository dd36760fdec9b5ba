"""State as rows: a table for each store of an image, and SQL over them.

tables  which tables there are, and how the rows of each are read
query   the answer to a question in SQL
arrow   an Arrow file that comes in pieces

Reads only.
"""
