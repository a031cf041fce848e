# Prints the first Python of 3.11 or newer on the PATH; nothing, and status 1, where there is none.
for name in python3 python3.12 python3.11 python3.13 python3.14 python; do
  if "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    command -v "$name"
    exit 0
  fi
done
exit 1
