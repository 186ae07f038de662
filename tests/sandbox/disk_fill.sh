#!/bin/sh
# attack: Write without end
# expect: disk
i=0
while :; do
    i=$((i + 1))
    head -c 10000000 /dev/zero >"$HOME/full.$i" || exit 1
done
