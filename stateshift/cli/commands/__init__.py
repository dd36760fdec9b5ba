"""One command a file: it reads its arguments, calls `migration` or `look`, shows the result."""
