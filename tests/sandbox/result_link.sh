#!/bin/sh
# attack: Leave a link to a secret as the result, for the worker to follow
# expect: fault
# plain: contained
ln -s /etc/passwd "$SLACKWATER_RESULT"
