"""Small edits of the program that a test must notice: ``make mutants``, docs/design/mutants.md."""
