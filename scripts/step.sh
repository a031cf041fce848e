# step.sh TITLE COMMAND...: runs a command whose output goes to a log. One line tells that it runs, for how long, and
# that it is done. Of a command that fails the log is printed, and the status is the command's.
title=$1
shift
mkdir -p .stamps
log=$(mktemp .stamps/log.XXXXXX) || exit 1
start=$(date +%s)
"$@" >"$log" 2>&1 </dev/null &
command=$!
trap 'kill "$command" 2>/dev/null; rm -f "$log"; exit 130' INT TERM HUP

seconds() { echo $(($(date +%s) - start)); }

if [ -t 2 ]; then
  while kill -0 "$command" 2>/dev/null; do
    printf '\r%s ... %s s' "$title" "$(seconds)" >&2
    sleep 0.3
  done
  printf '\r\033[K' >&2
else
  echo "$title ..." >&2
  said=0
  while kill -0 "$command" 2>/dev/null; do
    sleep 0.3
    if [ "$(seconds)" -ge $((said + 30)) ]; then
      said=$(seconds)
      echo "$title ... $said s" >&2
    fi
  done
fi
wait "$command"
status=$?
if [ "$status" = 0 ]; then
  echo "$title: done in $(seconds) s" >&2
else
  cat "$log" >&2
  echo "$title: failed (status $status) after $(seconds) s; what it printed is above" >&2
fi
rm -f "$log"
exit "$status"
