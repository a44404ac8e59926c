"""The work that is run; sources, tables and journals are seen only as ports."""
