"""DynamoDB's limits.

Source: AWS Developer Guide, "Quotas in Amazon DynamoDB", and the API reference of the operation named.
"""

import re

ITEM_BYTES = 400 * 1024
PARTITION_KEY_BYTES = 2048
SORT_KEY_BYTES = 1024
NUMBER_DIGITS = 38
NUMBER_MAX_EXPONENT = 125
NUMBER_MIN_EXPONENT = -130
NESTING_LEVELS = 32

BATCH_WRITE_ITEMS = 25
BATCH_WRITE_BYTES = 16 * 1024 * 1024
TRANSACTION_ACTIONS = 100
"""Of one TransactWriteItems, no two of them on one item."""
TRANSACTION_BYTES = 4 * 1024 * 1024
STATEMENT_BYTES = 8192
"""Of a PartiQL statement without its parameters. A BatchExecuteStatement takes as many statements as a batch items."""
BATCH_GET_KEYS = 100

GLOBAL_INDEXES = 20
LOCAL_INDEXES = 5
PROJECTED_ATTRIBUTES = 100

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
INDEX_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")

CLIMB_LEVELS = 100
"""Ours: a row with more ancestors than this, itself counted, is refused; so is a cycle, which has no end."""
