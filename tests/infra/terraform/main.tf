# The module on its own, against AWS or, with an endpoint, against a server on this machine.

variable "endpoint" {
  type    = string
  default = ""
}

variable "zip" {
  type = string
}

variable "memory" {
  type    = number
  default = 1769
}

provider "aws" {
  region                      = "us-east-1"
  s3_use_path_style           = var.endpoint != ""
  skip_credentials_validation = var.endpoint != ""
  skip_metadata_api_check     = var.endpoint != ""

  dynamic "endpoints" {
    for_each = var.endpoint == "" ? [] : [var.endpoint]
    content {
      iam    = endpoints.value
      kms    = endpoints.value
      lambda = endpoints.value
      logs   = endpoints.value
      s3     = endpoints.value
      sts    = endpoints.value
    }
  }
}

module "worker" {
  source = "../../../infra/terraform"
  zip    = var.zip
  memory = var.memory
}

output "all" {
  value = module.worker
}
