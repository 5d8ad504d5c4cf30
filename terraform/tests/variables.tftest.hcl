# The values that the variables refuse before any call to AWS.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "accepts_the_defaults" {
  command = plan
}

run "accepts_the_longest_name" {
  command = plan

  variables {
    name = "twenty-seven-characters-is-"
  }

  assert {
    condition     = length(aws_sfn_state_machine.recycle_node.name) == 40
    error_message = "the longest name gives a state machine's name of 40 characters"
  }
}

run "accepts_every_field_as_a_default" {
  command = plan

  variables {
    input_defaults = {
      label_selector      = "app=batch"
      namespaces          = ["batch", "reports"]
      evict               = "none"
      replacement         = "before"
      dispose             = "stop"
      replacement_timeout = "14m"
      node_lost_after     = "1800"
      skip_stuck_after    = "1h"
      drain_timeout       = "1d12h"
      on_drain_timeout    = "restore"
      load_balancer_grace = 60
      grace_period        = "45s"
      dry_run             = false
      override            = []
    }
  }
}

run "accepts_a_surge_as_large_as_the_parallel_limit" {
  command = plan

  variables {
    max_parallel_per_group = 6
    max_surge_per_group    = 6
  }
}

# A run takes seconds, so each of the following has one bad value for each of several variables, and must refuse all of them. (A validation that
# reads another variable refuses only if that one has a good value.)

run "refuses_the_first_bad_value_of_each" {
  command = plan

  variables {
    # One character too many for the claim's tag.
    name                          = "twenty-eight-characters-are-"
    cluster_name                  = "prod/eu"
    input_defaults                = { label_selectr = "app=batch" }
    max_parallel_per_group        = 0
    architecture                  = "amd64"
    vpc                           = { subnet_ids = [], security_group_ids = ["sg-1"] }
    notification_topic            = { arn = "ops@example.com" }
    notification_format           = "xml"
    iam_role_permissions_boundary = "Boundary"
    iam_role_path                 = "platform"
    kms_key_arn                   = "alias/logs"
    # Both places are given.
    artifacts = { directory = "./tests/artifacts", s3 = { bucket = "releases" } }
  }

  expect_failures = [
    var.name, var.cluster_name, var.input_defaults, var.max_parallel_per_group, var.architecture, var.vpc,
    var.notification_topic, var.notification_format, var.iam_role_permissions_boundary, var.iam_role_path, var.kms_key_arn, var.artifacts,
  ]
}

run "refuses_a_topic_and_a_key_of_another_region" {
  command = plan

  variables {
    notification_topic = { arn = "arn:aws:sns:eu-central-1:123456789012:ops" }
    kms_key_arn        = "arn:aws:kms:eu-central-1:123456789012:key/1234"
  }

  expect_failures = [var.notification_topic, var.kms_key_arn]
}

run "refuses_the_second_bad_value_of_each" {
  command = plan

  variables {
    name = "recycle eks"
    # Each execution has its own instance id, so it can have no default.
    input_defaults         = { instance_id = "i-0123456789abcdef0" }
    max_parallel_per_group = 1.5
    # No place is given.
    artifacts = {}
  }

  expect_failures = [var.name, var.input_defaults, var.max_parallel_per_group, var.artifacts]
}

run "refuses_the_third_bad_value_of_each" {
  command = plan

  variables {
    # A duration with a word for its unit.
    input_defaults         = { drain_timeout = "2 days" }
    max_parallel_per_group = 3
    # Smaller than max_parallel_per_group.
    max_surge_per_group = 2
    # The prefix ends with a slash.
    artifacts = { s3 = { bucket = "releases", prefix = "recycle-eks/" } }
  }

  expect_failures = [var.input_defaults, var.max_surge_per_group, var.artifacts]
}

run "refuses_more_than_an_inline_map_runs_at_once" {
  command = plan

  variables {
    max_surge_per_group = 41
  }

  expect_failures = [var.max_surge_per_group]
}

run "refuses_the_fourth_bad_value_of_each" {
  command = plan

  variables {
    # A list given as a string.
    input_defaults      = { namespaces = "batch" }
    max_surge_per_group = 2.5
  }

  expect_failures = [var.input_defaults, var.max_surge_per_group]
}
