#!/bin/sh
# attack: An endless loop that burns the CPU
# expect: cap
while :; do :; done
