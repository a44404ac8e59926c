"""The entry point of a job run on EMR Serverless, or of any spark-submit.

Its arguments are the command line behind `migrator`, without --spark: `backfill shop.yaml --json`. The job
file and its mapping come by --files.
"""

import os
import sys

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from migrator.spark import main

SparkSession.builder.getOrCreate()
os.chdir(SparkFiles.getRootDirectory())
main(sys.argv[1:])
