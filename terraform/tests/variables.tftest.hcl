# What the variables refuse, before anything is asked of AWS.

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

run "refuses_a_name_that_makes_the_claim_tag_too_long" {
  command = plan

  variables {
    name = "twenty-eight-characters-are-"
  }

  expect_failures = [var.name]
}

run "refuses_a_name_that_aws_does_not_allow" {
  command = plan

  variables {
    name = "recycle eks"
  }

  expect_failures = [var.name]
}

run "refuses_a_cluster_name_that_eks_does_not_allow" {
  command = plan

  variables {
    cluster_name = "prod/eu"
  }

  expect_failures = [var.cluster_name]
}

run "accepts_every_field_as_a_default" {
  command = plan

  variables {
    input_defaults = {
      label_selector              = "app=batch"
      namespaces                  = ["batch", "reports"]
      evict                       = "none"
      replacement                 = "before"
      dispose                     = "stop"
      replacement_timeout_seconds = 840
      drain_timeout_seconds       = 259200
      on_drain_timeout            = "restore"
      load_balancer_grace_seconds = 60
      dry_run                     = false
      force                       = []
    }
  }
}

run "refuses_a_misspelt_default" {
  command = plan

  variables {
    input_defaults = { label_selectr = "app=batch" }
  }

  expect_failures = [var.input_defaults]
}

run "refuses_a_default_for_the_instance" {
  command = plan

  variables {
    input_defaults = { instance_id = "i-0123456789abcdef0" }
  }

  expect_failures = [var.input_defaults]
}

run "refuses_a_number_given_as_a_string" {
  command = plan

  variables {
    input_defaults = { drain_timeout_seconds = "3600" }
  }

  expect_failures = [var.input_defaults]
}

run "refuses_a_list_given_as_a_string" {
  command = plan

  variables {
    input_defaults = { namespaces = "batch" }
  }

  expect_failures = [var.input_defaults]
}

run "refuses_no_node_at_a_time" {
  command = plan

  variables {
    max_parallel_per_group = 0
  }

  expect_failures = [var.max_parallel_per_group]
}

run "refuses_half_a_node" {
  command = plan

  variables {
    max_parallel_per_group = 1.5
  }

  expect_failures = [var.max_parallel_per_group]
}

run "refuses_a_surge_of_half_a_node" {
  command = plan

  variables {
    max_surge_per_group = 2.5
  }

  expect_failures = [var.max_surge_per_group]
}

run "refuses_a_surge_smaller_than_what_runs_at_a_time" {
  command = plan

  variables {
    max_parallel_per_group = 3
    max_surge_per_group    = 2
  }

  expect_failures = [var.max_surge_per_group]
}

run "accepts_a_surge_as_large_as_what_runs_at_a_time" {
  command = plan

  variables {
    max_parallel_per_group = 6
    max_surge_per_group    = 6
  }
}

run "refuses_another_architecture" {
  command = plan

  variables {
    architecture = "amd64"
  }

  expect_failures = [var.architecture]
}

run "refuses_a_vpc_without_subnets" {
  command = plan

  variables {
    vpc = { subnet_ids = [], security_group_ids = ["sg-1"] }
  }

  expect_failures = [var.vpc]
}

run "refuses_a_topic_that_is_none" {
  command = plan

  variables {
    notification_topic = { arn = "ops@example.com" }
  }

  expect_failures = [var.notification_topic]
}

run "refuses_a_boundary_that_is_none" {
  command = plan

  variables {
    permissions_boundary = "Boundary"
  }

  expect_failures = [var.permissions_boundary]
}

run "refuses_a_role_path_without_slashes" {
  command = plan

  variables {
    role_path = "platform"
  }

  expect_failures = [var.role_path]
}

run "refuses_a_key_that_is_none" {
  command = plan

  variables {
    kms_key_arn = "alias/logs"
  }

  expect_failures = [var.kms_key_arn]
}

run "refuses_packages_in_two_places" {
  command = plan

  variables {
    artifacts = { directory = "./tests/artifacts", s3 = { bucket = "releases" } }
  }

  expect_failures = [var.artifacts]
}

run "refuses_packages_in_no_place" {
  command = plan

  variables {
    artifacts = {}
  }

  expect_failures = [var.artifacts]
}

run "refuses_a_prefix_that_ends_with_a_slash" {
  command = plan

  variables {
    artifacts = { s3 = { bucket = "releases", prefix = "recycle-eks/" } }
  }

  expect_failures = [var.artifacts]
}
