"""Attacks on the running platform as a score: each probe with what must come of it and what came.

``python -m tests.lab attack`` runs ``manage.py up`` in a folder of its own, as a newcomer's machine has it, knocks at
its doors and prints a table. The exit code is 1 when a probe got something else than it says.

To add a probe, write a function in ``doors/DOOR.py`` (a new door is a new file there; it is found by itself)::

    @probe("api", expected="421")
    def a_foreign_host(ground: Ground) -> str:
        \"\"\"The API is asked under a name that is not its own.\"\"\"
        return str(ground.ask("/api/v1/tasks", headers={"Host": "evil.example"}).status)

The first line of its docstring says what the attacker does. What it returns stands under *got*, and held is what equals
``expected`` word for word while no part of the platform ended: answer in the words of ``expected`` when all is well, and
with what happened when not. Probes share one platform and may come in any order, so leave it as it was found.
``long=True`` keeps one that takes more than two seconds out of the short form (``--short``, which ``make test`` runs).
One that needs no running platform says ``ground=False`` and takes no argument.
"""
