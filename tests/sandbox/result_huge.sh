#!/bin/sh
# attack: Leave a huge result, with a hole that costs nothing
# expect: fault
truncate -s 15M "$SLACKWATER_RESULT"
