"""The script of an AWS Glue job: a backfill or a verify by Glue's own Spark.

`--words` is the command line behind `migrator`, without --spark: `backfill shop.yaml --json`. The job file and
its mapping come by --extra-files.
"""

import shlex
import sys

from awsglue.utils import getResolvedOptions

from migrator.spark import main

main(shlex.split(getResolvedOptions(sys.argv, ["words"])["words"]))
