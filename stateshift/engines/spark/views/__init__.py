"""State shown to who looks at an image, without a run. Reads only.

first_entries  some of every store, decoded
single_file    one file, with the schema that lies beside it
diff           two images compared by their entries
export         state, or changes, as rows for other programs (blocks, json_lines, json_text, tables)
selection      which images, operators and stores are meant
"""
