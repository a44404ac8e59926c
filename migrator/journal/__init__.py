"""Our own tables: runs, pages, findings, leases, phases and evidence."""
