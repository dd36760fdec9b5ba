"""An image as a stream of entries, whichever backend wrote it: files and subtasks forgotten."""
