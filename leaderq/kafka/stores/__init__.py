"""Where a career's progress is kept, and what refuses that of a former leader."""
