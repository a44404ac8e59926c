# The same application of EMR Serverless as in emr.yaml, for Terraform.

variable "bucket" { type = string }
variable "source_url_secret" { type = string }
variable "table_policy" { type = string }
variable "subnets" { type = list(string) }
variable "security_group" { type = string }
variable "maximum_cpu" {
  type    = string
  default = "20 vCPU"
}
variable "maximum_memory" {
  type    = string
  default = "80 GB"
}

data "aws_partition" "here" {}

resource "aws_emrserverless_application" "migrator" {
  name          = "migrator"
  release_label = "emr-7.8.0"
  type          = "spark"
  maximum_capacity {
    cpu    = var.maximum_cpu
    memory = var.maximum_memory
  }
  auto_start_configuration {
    enabled = true
  }
  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = 15
  }
  network_configuration {
    subnet_ids         = var.subnets
    security_group_ids = [var.security_group]
  }
}

resource "aws_iam_role" "migrator_emr" {
  name_prefix = "migrator-emr-"
  assume_role_policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Principal = { Service = "emr-serverless.amazonaws.com" }, Action = "sts:AssumeRole" }]
  })
}

resource "aws_iam_role_policy_attachment" "table" {
  role       = aws_iam_role.migrator_emr.name
  policy_arn = var.table_policy
}

resource "aws_iam_role_policy" "files_logs_and_source_url" {
  role = aws_iam_role.migrator_emr.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      { Effect = "Allow", Action = "s3:GetObject", Resource = "arn:${data.aws_partition.here.partition}:s3:::${var.bucket}/*" },
      { Effect = "Allow", Action = "s3:ListBucket", Resource = "arn:${data.aws_partition.here.partition}:s3:::${var.bucket}" },
      { Effect = "Allow", Action = "s3:PutObject", Resource = "arn:${data.aws_partition.here.partition}:s3:::${var.bucket}/logs/*" },
      { Effect = "Allow", Action = "secretsmanager:GetSecretValue", Resource = var.source_url_secret },
    ]
  })
}

output "application_id" { value = aws_emrserverless_application.migrator.id }
output "role_arn" { value = aws_iam_role.migrator_emr.arn }
