#!/bin/sh
# attack: Leave a result that is no text
# expect: fault
printf '"\377\376\000"' > "$SLACKWATER_RESULT"
