"""State shown to somebody who looks at an image, without a run. Reads only."""
