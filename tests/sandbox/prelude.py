import ctypes
import errno
import json
import os
import signal
import socket
import sys
import time

TARGET = json.load(open(os.environ["SLACKWATER_INPUTS"]))["kwargs"]
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
NUMBERS = {"x86_64": 0, "aarch64": 1}[os.uname().machine]


def attempt(name, action, *args):
    """One attack: an error means that it was refused, anything else that it worked."""
    try:
        answer = action(*args)
    except (OSError, EOFError, ValueError, KeyError) as error:
        print("refused", name, "-", type(error).__name__, error, flush=True)
        return None
    print("ESCAPED", name, repr(answer)[:200], flush=True)
    return answer


def call(numbers, *args):
    """A system call by its number on x86_64 and on aarch64; raises as Python's own do."""
    answer = LIBC.syscall(numbers[NUMBERS], *args)
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


