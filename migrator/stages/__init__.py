"""The work that is run; the edges are seen only as ports."""
