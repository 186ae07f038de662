#!/bin/sh
# attack: Leave a pipe as the result, for the worker to wait at for ever
# expect: fault
mkfifo "$SLACKWATER_RESULT"
