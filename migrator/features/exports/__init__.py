"""The outputs of `migrator export`: each kind is a pure function from a mapping and a job to the text of a
file.

`expressions.py` walks a mapping's expressions; each language completes it, and templates (`*.j2`) have the
rest.
"""
