#!/bin/sh
# What stands in for spark-submit where a test is about processes: runs the application (the first argument that is a
# .sh file) with what follows it, like the JVM runs the driver, and notes each start.
set -eu
echo "$STATESHIFT_TAG $*" >>"$STARTS"
while [ $# -gt 0 ]; do
    case "$1" in
        *.sh) exec /bin/sh "$@" ;;
        *) shift ;;
    esac
done
echo "no application" >&2
exit 2
