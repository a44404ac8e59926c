"""What MySQL has otherwise than MariaDB."""
