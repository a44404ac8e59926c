"""A session of a job whose journal is given."""

from pathlib import Path

from migrator.journal.runs import SqlJournal
from migrator.settings.job import Job
from migrator.stages.session.session import JobSession


def session_by(journal: SqlJournal, job: Job | Path = Path("shop.yaml")) -> JobSession:
    session = JobSession(job, "test")
    session.journal = journal
    return session
