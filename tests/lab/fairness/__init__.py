"""Whether the promises about fairness are kept: each as a case, simulated with the live policy code."""
