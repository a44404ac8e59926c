"""Our own tables: runs, pages, findings, phases and evidence; `records.py` keeps all that is small in one."""
