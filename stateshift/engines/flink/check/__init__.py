"""Everything a restart needs, read to its end: what a listing cannot tell. Reads only."""
