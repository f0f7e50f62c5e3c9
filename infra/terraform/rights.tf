resource "aws_iam_role" "this" {
  name_prefix        = "${substr(var.name, 0, 37)}-"
  description        = "What the worker ${var.name} may do"
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = local.tags
}

resource "aws_iam_role_policy" "worker" {
  name   = "worker"
  role   = aws_iam_role.this.id
  policy = data.aws_iam_policy_document.worker.json
}

resource "aws_iam_role_policy" "key" {
  count  = local.kms ? 1 : 0
  name   = "key"
  role   = aws_iam_role.this.id
  policy = data.aws_iam_policy_document.key_rights.json
}

resource "aws_iam_role_policy" "network" {
  count  = var.vpc == null ? 0 : 1
  name   = "network"
  role   = aws_iam_role.this.id
  policy = data.aws_iam_policy_document.network.json
}

resource "aws_iam_role_policy_attachment" "vpc" {
  count      = var.vpc == null ? 0 : 1
  role       = aws_iam_role.this.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/service-role/AWSLambdaENIManagementAccess"
}

resource "aws_iam_policy" "driver" {
  name_prefix = "${var.name}-driver-"
  description = "Run computations on ${var.name}"
  policy      = data.aws_iam_policy_document.driver.json
  tags        = local.tags
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "worker" {
  statement {
    sid       = "Objects"
    actions   = ["s3:GetObject", "s3:PutObject"]
    resources = ["${aws_s3_bucket.this.arn}/${var.prefix}/*"]
  }

  # Without it S3 answers 403 and not 404 for an object that is not there. That check carries no prefix, hence IfExists.
  statement {
    sid       = "MissingIsMissing"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.this.arn]

    condition {
      test     = "StringLikeIfExists"
      variable = "s3:prefix"
      values   = ["${var.prefix}/*"]
    }
  }

  statement {
    sid       = "Log"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.this.arn}:*"]
  }
}

data "aws_iam_policy_document" "key_rights" {
  statement {
    sid       = "Key"
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [local.key_arn]

    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["s3.${local.region}.${data.aws_partition.this.dns_suffix}"]
    }
  }
}

# Lambda itself needs the rights to network interfaces; the code that runs in the function does not.
data "aws_iam_policy_document" "network" {
  statement {
    sid    = "CodeMakesNoInterfaces"
    effect = "Deny"
    actions = [
      "ec2:AssignPrivateIpAddresses",
      "ec2:CreateNetworkInterface",
      "ec2:DeleteNetworkInterface",
      "ec2:DescribeNetworkInterfaces",
      "ec2:UnassignPrivateIpAddresses",
    ]
    resources = ["*"]

    condition {
      test     = "ArnEquals"
      variable = "lambda:SourceFunctionArn"
      values   = [local.function_arn]
    }
  }
}

data "aws_iam_policy_document" "driver" {
  statement {
    sid       = "Worker"
    actions   = ["lambda:GetFunctionConfiguration", "lambda:InvokeFunction"]
    resources = [aws_lambda_function.this.arn]
  }

  statement {
    sid       = "Objects"
    actions   = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    resources = ["${aws_s3_bucket.this.arn}/${var.prefix}/*"]
  }

  statement {
    sid       = "List"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.this.arn]

    condition {
      test     = "StringLikeIfExists"
      variable = "s3:prefix"
      values   = ["${var.prefix}/*"]
    }
  }

  statement {
    sid       = "Region"
    actions   = ["s3:GetBucketLocation"]
    resources = [aws_s3_bucket.this.arn]
  }

  dynamic "statement" {
    for_each = local.kms ? [local.key_arn] : []
    content {
      sid       = "Key"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [statement.value]

      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["s3.${local.region}.${data.aws_partition.this.dns_suffix}"]
      }
    }
  }
}

data "aws_iam_policy_document" "bucket" {
  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.this.arn, "${aws_s3_bucket.this.arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

data "aws_iam_policy_document" "key" {
  statement {
    sid       = "AccountAdministersKey"
    resources = ["*"]
    actions = [
      "kms:CancelKeyDeletion",
      "kms:DescribeKey",
      "kms:DisableKey",
      "kms:EnableKey",
      "kms:EnableKeyRotation",
      "kms:GetKeyPolicy",
      "kms:GetKeyRotationStatus",
      "kms:ListResourceTags",
      "kms:PutKeyPolicy",
      "kms:ScheduleKeyDeletion",
      "kms:TagResource",
      "kms:UntagResource",
      "kms:UpdateKeyDescription",
    ]

    principals {
      type        = "AWS"
      identifiers = ["arn:${local.partition}:iam::${local.account}:root"]
    }
  }

  # Who in the account may use it is said by the policies above; here only: through S3, for objects.
  statement {
    sid       = "AccountUsesKeyThroughS3"
    resources = ["*"]
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]

    principals {
      type        = "AWS"
      identifiers = ["arn:${local.partition}:iam::${local.account}:root"]
    }

    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["s3.${local.region}.${data.aws_partition.this.dns_suffix}"]
    }
  }
}
