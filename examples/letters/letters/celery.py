"""The application: broker, results and beat, as most have them."""

import os

from celery import Celery

app = Celery("letters", broker=os.environ["LETTERS_REDIS"], backend=os.environ["LETTERS_REDIS"])
app.conf.imports = ["letters.tasks"]
app.conf.beat_schedule = {
    "sweep": {"task": "letters.sweep", "schedule": float(os.environ.get("LETTERS_SWEEP_S", "3600"))}
}
