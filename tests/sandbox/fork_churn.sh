#!/bin/sh
# attack: Make processes that end at once, faster than anybody can look at them
# expect: cap
while :; do
    /bin/true &
    /bin/true
done
