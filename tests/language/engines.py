"""The engines that every mapping of the tests is laid over."""

ENGINES = ("sqlite", "postgresql", "mariadb")
