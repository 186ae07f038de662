"""The runner: the one process of a node that may speak to a container engine. Workers ask it to run scripts.

Started as ``python -m scheduler_ext.runner``; it needs neither Django nor the database nor Redis, and knows none of
their passwords. A worker speaks to it over a local socket (or TCP, inside a network of its own) in
:mod:`scheduler_ext.sandbox.frames`, one connection for each of its slots:

========================  ===========================================================================================
the runner                ``{"runner": 3, "nonce": …}`` when a connection is made
the worker                ``{"do": "hello", "proof": HMAC-SHA-256 of the nonce by the token, "node": …}``
the runner                what it offers (``image``, ``runtime``, ``network``, …), or ``{"error": why}`` and the end
the worker                ``{"do": "run", "limits": …, "env": …, "saves": …, "lease_s": …, "left_s": …, "parts":
                          [sizes]}`` with the script, its inputs and the checkpoint it goes on from
the worker, meanwhile     ``{"do": "stop"}`` (SIGTERM), ``{"do": "kill"}``, ``{"do": "kept"}`` (a checkpoint is stored),
                          ``{"do": "beat", "left_s": …}`` (it lives, and its lease holds that long)
the runner, meanwhile     ``{"out": n}`` and ``{"err": n}`` with output, ``{"saved": n}`` with a checkpoint,
                          ``{"unsaved": why}``, ``{"artifacts": true}`` with those
the runner, at last       ``{"code": …, "exceeded": …, "fault": …, "result": true or false, …}`` with the result:
                          nothing of the script is left; or ``{"error": why}``: it could not be run
the worker, between       ``{"do": "status"}``, answered with what the runner offers and how much runs
========================  ===========================================================================================

That a connection ends ends what runs for it. The same messages, less the greeting, pass between the runner and the
keeper inside (:mod:`scheduler_ext.sandbox.keeper.container_init`); nothing goes by shared folders. So whatever starts
that keeper and passes bytes to and from it can stand in the engine's place: another runtime of the engine (gVisor's
``runsc``, Kata's virtual machines), another node, a virtual machine.
"""
