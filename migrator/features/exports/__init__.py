"""What `migrator export` writes: each kind is a pure function from a mapping and a job to the text of a file.

`expressions.py` walks the expressions of a mapping; each language completes it, and templates (`*.j2`) have the rest.
"""
