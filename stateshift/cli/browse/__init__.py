"""`stateshift browse`: images and runs at a terminal, page by page. Reads only.

page     the content of a screen, as a value, and the reading of its rows
images   the pages of an image, and of two
runs     the pages of runs, and the first page of all
app      the terminal; the only module that knows textual
"""
