"""The journal's tables: runs, pages, findings, phases and evidence; `records.py` keeps all small records in one table."""
