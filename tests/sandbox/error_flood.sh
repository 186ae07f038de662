#!/bin/sh
# attack: Error output without end, from many processes
# expect: output
for i in 1 2 3 4; do yes "an error" >&2 & done
wait
