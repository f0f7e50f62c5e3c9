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

variable "kms_key" {
  type    = string
  default = "none"
}

variable "vpc" {
  type = object({
    id           = string
    subnets      = list(string)
    route_tables = list(string)
  })
  default = null
}

provider "aws" {
  region                      = "us-east-1"
  s3_use_path_style           = var.endpoint != ""
  skip_credentials_validation = var.endpoint != ""
  skip_metadata_api_check     = var.endpoint != ""

  dynamic "endpoints" {
    for_each = var.endpoint == "" ? [] : [var.endpoint]
    content {
      ec2    = endpoints.value
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
  source  = "../../../infra/terraform"
  zip     = var.zip
  memory  = var.memory
  kms_key = var.kms_key
  vpc     = var.vpc
}

output "all" {
  value = module.worker
}
