#!/bin/sh
# A cluster of a few lines, spoken to by clusters of kind command: find, submit, stop. It counts for itself.
#
#   $CLUSTER/log       what really happened: verb|tag|location, a line each
#   $CLUSTER/alive.*   a job that is writing now
#   $CLUSTER/kill      "<where> <pid>": the process to kill when `submit` gets there
#
# The job it starts writes $WRITES (paths below its location), each whole, and then goes on idly. Or, where $FAILS is
# set, it fails. Started early ($STATESHIFT_WAIT), it first says that it waits, and is released or stopped.
log="$CLUSTER/log"

kill_here() {
  [ -f "$CLUSTER/kill" ] || return 0
  read -r where pid <"$CLUSTER/kill"
  if [ "$where" = "$1" ]; then rm -f "$CLUSTER/kill"; kill -9 "$pid"; fi
}

is_stopped() {
  grep -q "^stop|$1|" "$log"
}

wait_for_the_image() {
  marks="${STATESHIFT_LOCATION#file://}/_stateshift"
  mkdir -p "$marks"
  echo "{\"tag\": \"$1\"}" >"$CLUSTER/$1.part"
  mv "$CLUSTER/$1.part" "$marks/waiting"
  while [ ! -e "$marks/released" ] && ! is_stopped "$1"; do sleep 0.01; done
}

job() {
  if [ -n "$STATESHIFT_WAIT" ]; then wait_for_the_image "$1"; fi
  if is_stopped "$1"; then rm -f "$CLUSTER/alive.$1"; return; fi
  for path in $WRITES; do
    file="${STATESHIFT_LOCATION#file://}/$path"
    mkdir -p "${file%/*}"
    echo "written by the job that was moved: $path" >"$CLUSTER/$1.part"
    mv "$CLUSTER/$1.part" "$file"
  done
  rm -f "$CLUSTER/alive.$1"
}

case "$1" in
find)
  state=absent at=
  while IFS='|' read -r verb tag location; do
    if [ -n "$STATESHIFT_TAG" ]; then
      # What is stopped without a tag is whatever runs on the location.
      [ "$tag" = "$STATESHIFT_TAG" ] || [ "$verb||$at" = "stop|$tag|$location" ] || continue
      at="$location"
    else [ "$location" = "$STATESHIFT_LOCATION" ] || continue; fi
    case "$verb" in submit) state=running ;; failed) state=failed ;; *) state=finished ;; esac
  done <"$log"
  echo "$state an-id"
  ;;
submit)
  kill_here before-it-counts
  : >"$CLUSTER/alive.$STATESHIFT_TAG"
  echo "submit|$STATESHIFT_TAG|$STATESHIFT_LOCATION" >>"$log"
  kill_here before-the-job-starts
  if [ -n "$FAILS" ]; then
    echo "failed|$STATESHIFT_TAG|$STATESHIFT_LOCATION" >>"$log"
    rm -f "$CLUSTER/alive.$STATESHIFT_TAG"
  else
    job "$STATESHIFT_TAG" >/dev/null 2>&1 &
  fi
  kill_here before-the-answer
  echo an-id
  ;;
stop)
  echo "stop|$STATESHIFT_TAG|$STATESHIFT_LOCATION" >>"$log"
  while [ -n "$STATESHIFT_TAG" ] && [ -e "$CLUSTER/alive.$STATESHIFT_TAG" ]; do sleep 0.01; done
  echo stopped
  ;;
esac
