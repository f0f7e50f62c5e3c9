output "bucket" {
  value = aws_s3_bucket.this.id
}

output "prefix" {
  value = var.prefix
}

output "function" {
  value = aws_lambda_function.this.function_name
}

output "region" {
  value = local.region
}

output "driver_policy_arn" {
  value       = aws_iam_policy.driver.arn
  description = "Attach it to whoever runs computations."
}
