"""The matrix of versions: what each combination that can be had here does with the example projects."""
