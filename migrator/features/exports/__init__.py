"""The outputs of `migrator export`: each kind is a pure function from a mapping and a job to a file's text.

`expressions.py` walks a mapping's expressions; each language completes it, and templates (`*.j2`) have the rest.
"""
