# The same job of AWS Glue 5.0 as in glue.yaml, for Terraform.

variable "bucket" { type = string }
variable "wheel" {
  type    = string
  default = "single_table_migrator-0.1.0-py3-none-any.whl"
}
variable "job_file" {
  type    = string
  default = "shop.yaml"
}
variable "mapping_file" {
  type    = string
  default = "mapping.yaml"
}
variable "source_url_secret" { type = string }
variable "table_policy" { type = string }
variable "subnet" { type = string }
variable "availability_zone" { type = string }
variable "security_group" { type = string }
variable "workers" {
  type    = number
  default = 5
}

data "aws_partition" "here" {}

resource "aws_iam_role" "migrator_glue" {
  name_prefix = "migrator-glue-"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Principal = { Service = "glue.amazonaws.com" }, Action = "sts:AssumeRole" }]
  })
}

resource "aws_iam_role_policy_attachment" "service" {
  role       = aws_iam_role.migrator_glue.name
  policy_arn = "arn:${data.aws_partition.here.partition}:iam::aws:policy/service-role/AWSGlueServiceRole"
}

resource "aws_iam_role_policy_attachment" "table" {
  role       = aws_iam_role.migrator_glue.name
  policy_arn = var.table_policy
}

resource "aws_iam_role_policy" "files_and_source_url" {
  role = aws_iam_role.migrator_glue.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      { Effect = "Allow", Action = "s3:GetObject", Resource = "arn:${data.aws_partition.here.partition}:s3:::${var.bucket}/*" },
      { Effect = "Allow", Action = "secretsmanager:GetSecretValue", Resource = var.source_url_secret },
    ]
  })
}

resource "aws_glue_connection" "network" {
  name            = "migrator-network"
  connection_type = "NETWORK"
  physical_connection_requirements {
    availability_zone      = var.availability_zone
    subnet_id              = var.subnet
    security_group_id_list = [var.security_group]
  }
}

resource "aws_glue_job" "migrator" {
  name              = "migrator"
  role_arn          = aws_iam_role.migrator_glue.arn
  glue_version      = "5.0"
  worker_type       = "G.1X"
  number_of_workers = var.workers
  timeout           = 2880
  max_retries       = 1
  connections       = [aws_glue_connection.network.name]
  execution_property {
    max_concurrent_runs = 1
  }
  command {
    name            = "glueetl"
    python_version  = "3"
    script_location = "s3://${var.bucket}/glue.py"
  }
  default_arguments = {
    "--words"                            = "backfill ${var.job_file} --json --yes"
    "--additional-python-modules"        = "s3://${var.bucket}/${var.wheel},psycopg[binary]>=3.1,pymysql[rsa]>=1.1"
    "--extra-files"                      = "s3://${var.bucket}/${var.job_file},s3://${var.bucket}/${var.mapping_file}"
    "--conf"                             = "spark.speculation=true"
    "--enable-metrics"                   = "true"
    "--enable-continuous-cloudwatch-log" = "true"
  }
}
