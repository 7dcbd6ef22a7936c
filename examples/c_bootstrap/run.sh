#!/bin/sh
# run.sh PROGRAM RANKS: starts the ranks of c_bootstrap, as a program's own launcher would.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
rank=1
others=
while [ "$rank" -lt "$2" ]; do
    "$1" "$rank" "$2" "$folder/socket" &
    others="$others $!"
    rank=$((rank + 1))
done
"$1" 0 "$2" "$folder/socket" || exit
for other in $others; do wait "$other" || exit; done
