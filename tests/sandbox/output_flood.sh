#!/bin/sh
# attack: Output without end
# expect: output
exec yes "a line that fills your disk with logs"
