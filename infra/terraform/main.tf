data "aws_caller_identity" "this" {}
data "aws_partition" "this" {}
data "aws_region" "this" {}

locals {
  tags         = { "serverless-gc" = var.name }
  account      = data.aws_caller_identity.this.account_id
  partition    = data.aws_partition.this.partition
  region       = data.aws_region.this.name
  function_arn = "arn:${local.partition}:lambda:${local.region}:${local.account}:function:${var.name}"
  kms          = var.kms_key != "none"
  own_key      = var.kms_key == "create"
  key_arn      = local.own_key ? one(aws_kms_key.this[*].arn) : var.kms_key
}

# -- the bucket --------------------------------------------------------------------------------------------

resource "aws_s3_bucket" "this" {
  bucket_prefix = "${lower(var.name)}-"
  force_destroy = true # scratch: terraform destroy empties it
  tags          = local.tags
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    bucket_key_enabled = local.kms ? true : null

    apply_server_side_encryption_by_default {
      sse_algorithm     = local.kms ? "aws:kms" : "AES256"
      kms_master_key_id = local.kms ? local.key_arn : null
    }
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket                  = aws_s3_bucket.this.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    id     = "expire-scratch"
    status = "Enabled"

    filter {
      prefix = "${var.prefix}/runs/" # not what is kept under names, which is below kept/
    }

    expiration {
      days = var.scratch_days
    }
  }

  rule {
    id     = "abort-uploads"
    status = "Enabled"

    filter {
      prefix = "${var.prefix}/"
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

resource "aws_s3_bucket_policy" "this" {
  bucket     = aws_s3_bucket.this.id
  policy     = data.aws_iam_policy_document.bucket.json
  depends_on = [aws_s3_bucket_public_access_block.this] # S3 refuses two changes of one bucket at a time
}

resource "aws_kms_key" "this" {
  count                   = local.own_key ? 1 : 0
  description             = "Scratch objects of ${var.name}"
  enable_key_rotation     = true
  deletion_window_in_days = 7
  policy                  = data.aws_iam_policy_document.key.json
  tags                    = local.tags
}

# -- the function ------------------------------------------------------------------------------------------

resource "aws_cloudwatch_log_group" "this" {
  name              = "/aws/lambda/${var.name}"
  retention_in_days = var.log_days
  tags              = local.tags
}

resource "aws_lambda_function" "this" {
  function_name                  = var.name
  description                    = "serverless_gc worker"
  filename                       = var.zip
  source_code_hash               = filebase64sha256(var.zip)
  runtime                        = "python${var.python}"
  architectures                  = [var.architecture]
  handler                        = "handler.handler"
  role                           = aws_iam_role.this.arn
  memory_size                    = var.memory
  timeout                        = var.timeout
  layers                         = var.layers
  reserved_concurrent_executions = var.reserved_concurrency
  tags                           = local.tags

  dynamic "environment" {
    for_each = var.cache_megabytes == null ? [] : [var.cache_megabytes]
    content {
      variables = { SERVERLESS_GC_CACHE_MB = tostring(environment.value) }
    }
  }

  dynamic "vpc_config" {
    for_each = var.vpc == null ? [] : [var.vpc]
    content {
      subnet_ids         = vpc_config.value.subnets
      security_group_ids = aws_security_group.this[*].id
    }
  }

  depends_on = [aws_cloudwatch_log_group.this, aws_iam_role_policy.worker, aws_iam_role_policy_attachment.vpc]
}

# For asynchronous invocations: what repeats is the driver, which counts; the service repeats nothing.
resource "aws_lambda_function_event_invoke_config" "this" {
  function_name                = aws_lambda_function.this.function_name
  qualifier                    = "$LATEST"
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 60
}

# -- the network, if wanted --------------------------------------------------------------------------------

resource "aws_security_group" "this" {
  count       = var.vpc == null ? 0 : 1
  name_prefix = "${var.name}-"
  description = "Worker ${var.name}: HTTPS out, nothing in"
  vpc_id      = var.vpc.id
  tags        = local.tags

  egress {
    description = "S3 by its gateway endpoint"
    from_port   = 443
    to_port     = 443
    protocol    = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_vpc_endpoint" "s3" {
  count             = var.vpc == null ? 0 : (length(var.vpc.route_tables) > 0 ? 1 : 0)
  vpc_endpoint_type = "Gateway"
  service_name      = "com.amazonaws.${local.region}.s3"
  vpc_id            = var.vpc.id
  route_table_ids   = var.vpc.route_tables
  tags              = local.tags
}
