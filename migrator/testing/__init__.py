"""For tests of a service: `FakeMigration`, a migration without a database and without DynamoDB."""

from migrator.source.adapter.events import Write
from migrator.testing.fake import FakeMigration, Read

__all__ = ["FakeMigration", "Read", "Write"]
