"""Mutants: small edits to the lines that keep two from acting, each with the test that kills it.

``make mutants`` applies one after the other to a copy of the tree. Whoever adds such a line to the
program adds its mutant here.
"""
