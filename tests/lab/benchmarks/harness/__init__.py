"""Slackwater as a peer of a comparison harness that is not ours."""
