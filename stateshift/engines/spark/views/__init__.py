"""State shown to who looks at an image, without a run. Reads only.

first_entries  some of every store, decoded       single_file   one file, with the schema that lies beside it
differing      two images compared by their entries
exporting      state, or changes, as rows for other programs (pieces, lines, json_text, tables)
selecting      which images, operators and stores are meant
"""
