"""A changed row: which root rows it concerns, and which keys its items have."""
