"""Spans from submission to finish: made from the ledger once a traced task has ended, and sent by OTLP over HTTP."""
