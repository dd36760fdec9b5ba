"""Files of a disk of this machine, or of one that is mounted."""
