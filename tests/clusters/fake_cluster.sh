#!/bin/sh
# A cluster for tests: every job is a file in $JOBS, its content a state; `started` gets a line for each job that was
# really started. Usage: fake_cluster.sh submit|find|stop|version|log
set -eu
name=$(printf %s "${STATESHIFT_TAG:-by-hand-$STATESHIFT_JOB}" | md5sum | cut -c1-16)
job="$JOBS/$name"
case "$1" in
    submit)
        sleep "${SLOW:-0}"
        echo "$STATESHIFT_TAG" >>"$JOBS/started"
        echo running >"$job.new" && mv "$job.new" "$job"  # whole, whenever it is looked at
        echo "accepted"
        echo "job-$name" ;;
    find)
        if [ -f "$job" ]; then echo "$(cat "$job") job-$name"; else echo absent; fi ;;
    stop)
        if [ "$(cat "$job" 2>/dev/null)" = running ]; then echo finished >"$job.new" && mv "$job.new" "$job"; fi
        echo "stopped $name" ;;
    version) echo 4.3.0 ;;
    log) echo "all is well, password=hunter22" ;;
esac
