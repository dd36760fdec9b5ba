"""State as rows: a table for each store of an image, and SQL over them.

tables   which tables there are, and how the rows of each are read
query    the answer to a question in SQL
rows     rows in files: an answer's, and those that become state
profile  how many entries there are, how large and how old they are, and where they lie
"""
