"""The figures of the control room, each from the test or the platform that shows it, on one page."""
