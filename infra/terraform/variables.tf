variable "name" {
  type        = string
  default     = "serverless-gc"
  description = "Name of the function, and what all other names begin with."
}

variable "zip" {
  type        = string
  description = "The worker's zip, made by: serverless-gc build"
}

variable "prefix" {
  type        = string
  default     = "sgc"
  description = "First part of all keys. Rights and lifecycle rules cover this prefix."

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$", var.prefix))
    error_message = "The prefix is 1 to 63 letters, digits, dots, dashes or underscores."
  }
}

variable "python" {
  type        = string
  default     = "3.13"
  description = "Python of the function; the zip must have been built for it."
}

variable "architecture" {
  type        = string
  default     = "arm64"
  description = "arm64 or x86_64; the zip must have been built for it."
}

variable "memory" {
  type        = number
  default     = 1769
  description = "Megabytes; 1769 buy one processor. New accounts are capped at 3008."
}

variable "timeout" {
  type        = number
  default     = 300
  description = "Seconds one task may run. Not above the driver's deadline, or abandoned tasks run on and are billed."
}

variable "cache_megabytes" {
  type        = number
  default     = null
  description = "Blocks that a warm worker keeps; null for a quarter of its memory."
}

variable "scratch_days" {
  type        = number
  default     = 7
  description = "Days after which S3 deletes what a run has left behind."
}

variable "log_days" {
  type        = number
  default     = 14
  description = "Days that the function's log is kept."
}

variable "kms_key" {
  type        = string
  default     = "none"
  description = "none for S3's own encryption, create for a key of this module's own, or the ARN of a key."
}

variable "reserved_concurrency" {
  type        = number
  default     = -1
  description = "Invocations set aside for this function; -1 reserves nothing. Accounts with few cannot reserve any."
}

variable "layers" {
  type        = list(string)
  default     = []
  description = "ARNs of layer versions with further packages for the worker."
}

variable "vpc" {
  type = object({
    id           = string
    subnets      = list(string)
    route_tables = optional(list(string), [])
  })
  default     = null
  description = "VPC to run in; the worker needs none. The route tables get an S3 gateway endpoint; empty if they have one."
}
