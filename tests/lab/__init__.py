"""The laboratory: benchmarks, torture, the sandbox score and the generated reference. Never shipped."""
