# The functions as Lambda receives them.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  cluster_name = "prod"
  artifacts    = { directory = "./tests/artifacts" }
}

run "every_step_has_its_own_published_function" {
  command = plan

  assert {
    condition = { for step, function in aws_lambda_function.this : step => function.function_name } == {
      claim-node       = "recycle-eks-claim-node"
      standby-node     = "recycle-eks-standby-node"
      taint-node       = "recycle-eks-taint-node"
      check-pods       = "recycle-eks-check-pods"
      evict-pods       = "recycle-eks-evict-pods"
      detach-terminate = "recycle-eks-detach-terminate"
      restore-node     = "recycle-eks-restore-node"
      select-nodes     = "recycle-eks-select-nodes"
      serve-operator   = "recycle-eks-serve-operator"
      start-rotation   = "recycle-eks-start-rotation"
    }
    error_message = "each step has one function, named after it"
  }

  assert {
    condition = alltrue([
      for step, function in aws_lambda_function.this :
      function.description == "recycle-eks ${trimspace(file("./version.txt"))}: the step ${step}"
    ])
    error_message = "the description of a function contains the module's version, which recycle-eks doctor reads"
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.publish])
    error_message = "every function is published, because executions outlive deployments"
  }

  assert {
    condition = alltrue([
      for step, function in aws_lambda_function.this :
      function.filename == "./tests/artifacts/arm64/${step}.zip" && function.runtime == "provided.al2023" && function.handler == "bootstrap"
    ])
    error_message = "every function runs the bootstrap of its own zip"
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.architectures == tolist(["arm64"])])
    error_message = "arm64 is the default"
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : length(function.vpc_config) == 0])
    error_message = "without vpc no function is in a VPC"
  }

  assert {
    condition = alltrue([
      for step, function in aws_lambda_function.this :
      function.logging_config[0].log_group == "/aws/lambda/recycle-eks-${step}" && function.logging_config[0].log_format == "JSON"
    ])
    error_message = "every function logs JSON to its own group"
  }

  assert {
    condition     = alltrue([for group in aws_cloudwatch_log_group.function : group.retention_in_days == 90])
    error_message = "logs are kept as long as the histories of executions"
  }
}

run "each_function_has_only_the_environment_that_it_reads" {
  command = plan

  variables {
    input_defaults = {
      label_selector = "app=batch"
      namespaces     = ["batch"]
      drain_timeout  = "3d"
      dry_run        = true
    }
  }

  assert {
    condition     = keys(aws_lambda_function.this["claim-node"].environment[0].variables) == tolist(["CLUSTER_NAME", "INPUT_DEFAULTS", "MAX_PARALLEL_PER_GROUP", "MAX_SURGE_PER_GROUP"])
    error_message = "claim-node reads the cluster's name, the defaults of the input, and the limits of a group"
  }

  assert {
    condition     = aws_lambda_function.this["claim-node"].environment[0].variables["CLUSTER_NAME"] == "prod"
    error_message = "CLUSTER_NAME is the name of the cluster"
  }

  assert {
    condition = (
      aws_lambda_function.this["claim-node"].environment[0].variables["INPUT_DEFAULTS"]
      == "{\"drain_timeout\":\"3d\",\"dry_run\":true,\"label_selector\":\"app=batch\",\"namespaces\":[\"batch\"]}"
    )
    error_message = "INPUT_DEFAULTS holds the defaults as JSON, each with its own type"
  }

  assert {
    condition     = aws_lambda_function.this["check-pods"].environment[0].variables == tomap({ CLUSTER_NAME = "prod", CANCEL_INSTANCE_REFRESH = "false" })
    error_message = "check-pods reads the cluster's name, and whether it cancels instance refreshes"
  }

  assert {
    condition = aws_lambda_function.this["select-nodes"].environment[0].variables == tomap({
      CLUSTER_NAME        = "prod"
      INPUT_DEFAULTS      = aws_lambda_function.this["claim-node"].environment[0].variables["INPUT_DEFAULTS"]
      MAX_SURGE_PER_GROUP = "5"
    })
    error_message = "select-nodes reads the defaults of the input, and how many nodes of a group may be in progress"
  }

  assert {
    condition     = alltrue([for step, function in aws_lambda_function.this : function.environment[0].variables == tomap({ CLUSTER_NAME = "prod" }) if !contains(["claim-node", "check-pods", "select-nodes", "start-rotation"], step)])
    error_message = "the other functions read only the cluster's name"
  }
}

run "by_default_one_node_of_a_group_is_replaced_at_a_time_and_five_are_in_progress" {
  command = plan

  assert {
    condition     = aws_lambda_function.this["claim-node"].environment[0].variables["MAX_PARALLEL_PER_GROUP"] == "1"
    error_message = "one node is replaced at a time"
  }

  assert {
    condition     = aws_lambda_function.this["claim-node"].environment[0].variables["MAX_SURGE_PER_GROUP"] == "5"
    error_message = "five nodes are in progress"
  }
}

run "the_limits_of_a_group_reach_claim_node" {
  command = plan

  variables {
    max_parallel_per_group = 2
    max_surge_per_group    = 12
  }

  assert {
    condition     = aws_lambda_function.this["claim-node"].environment[0].variables["MAX_PARALLEL_PER_GROUP"] == "2"
    error_message = "MAX_PARALLEL_PER_GROUP is max_parallel_per_group"
  }

  assert {
    condition     = aws_lambda_function.this["claim-node"].environment[0].variables["MAX_SURGE_PER_GROUP"] == "12"
    error_message = "MAX_SURGE_PER_GROUP is max_surge_per_group"
  }
}

run "no_defaults_are_an_empty_object" {
  command = plan

  assert {
    condition     = aws_lambda_function.this["claim-node"].environment[0].variables["INPUT_DEFAULTS"] == "{}"
    error_message = "without input_defaults INPUT_DEFAULTS is {}"
  }
}

run "the_settings_of_an_account_reach_every_function" {
  command = plan

  variables {
    architecture       = "x86_64"
    vpc                = { subnet_ids = ["subnet-1", "subnet-2"], security_group_ids = ["sg-1"] }
    tracing            = true
    log_retention_days = 7
    kms_key_arn        = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234"
    tags               = { team = "platform" }
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.architectures == tolist(["x86_64"])])
    error_message = "x86_64 is allowed"
  }

  assert {
    condition = alltrue([
      for function in aws_lambda_function.this :
      function.vpc_config[0].subnet_ids == toset(["subnet-1", "subnet-2"]) && function.vpc_config[0].security_group_ids == toset(["sg-1"])
    ])
    error_message = "every function is in the VPC"
  }

  assert {
    condition     = alltrue([for function in aws_lambda_function.this : function.tracing_config[0].mode == "Active"])
    error_message = "every function is traced"
  }

  assert {
    condition = alltrue([
      for group in concat(values(aws_cloudwatch_log_group.function), values(aws_cloudwatch_log_group.state_machine)) :
      group.retention_in_days == 7 && group.kms_key_id == "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234"
    ])
    error_message = "retention and key hold for every log group"
  }

  assert {
    condition = alltrue([
      for resource in concat(
        values(aws_lambda_function.this),
        values(aws_iam_role.function),
        values(aws_cloudwatch_log_group.function),
        values(aws_eks_access_entry.function),
        values(aws_sns_topic.notifications),
        [aws_sqs_queue.dead_letters],
        values(aws_cloudwatch_metric_alarm.this),
        values(aws_cloudwatch_event_rule.unreported),
        values(aws_iam_role.state_machine),
        values(aws_cloudwatch_log_group.state_machine),
        values(aws_cloudwatch_event_rule.sweep),
        [aws_iam_role.events, aws_sfn_state_machine.recycle_node, aws_sfn_state_machine.sweep],
      ) : resource.tags == tomap({ team = "platform" })
    ])
    error_message = "every resource that can have tags has them"
  }
}

run "the_error_names_a_missing_zip" {
  command = plan

  variables {
    artifacts = { directory = "./tests/nowhere" }
  }

  expect_failures = [aws_lambda_function.this]
}

run "packages_of_another_version_are_refused" {
  command = plan

  variables {
    artifacts = { directory = "./tests/artifacts-of-another-version" }
  }

  expect_failures = [aws_lambda_function.this]
}

run "packages_may_be_in_s3" {
  command = plan

  variables {
    artifacts = { s3 = { bucket = "releases", prefix = "recycle-eks/next" } }
  }

  override_data {
    target = data.aws_s3_object.version
    values = { body = "0.1.0\n" }
  }

  override_data {
    target = data.aws_s3_object.package
    values = { version_id = "3" }
  }

  assert {
    condition = alltrue([
      for step, function in aws_lambda_function.this :
      function.filename == null && function.s3_bucket == "releases" && function.s3_key == "recycle-eks/next/arm64/${step}.zip" &&
      function.s3_object_version == "3"
    ])
    error_message = "every function uses its package in the bucket, in the newest version"
  }
}

run "without_a_prefix_packages_are_at_the_top_of_the_bucket" {
  command = plan

  variables {
    artifacts = { s3 = { bucket = "releases" } }
  }

  override_data {
    target = data.aws_s3_object.version
    values = { body = "0.1.0\n" }
  }

  assert {
    condition     = aws_lambda_function.this["check-pods"].s3_key == "arm64/check-pods.zip"
    error_message = "without a prefix the key starts with the architecture"
  }
}

run "packages_of_another_version_in_s3_are_refused" {
  command = plan

  variables {
    artifacts = { s3 = { bucket = "releases" } }
  }

  override_data {
    target = data.aws_s3_object.version
    values = { body = "0.0.1" }
  }

  expect_failures = [aws_lambda_function.this]
}

run "a_version_in_s3_that_is_not_text_is_refused" {
  command = plan

  variables {
    artifacts = { s3 = { bucket = "releases" } }
  }

  override_data {
    target = data.aws_s3_object.version
    values = { body = null }
  }

  expect_failures = [aws_lambda_function.this]
}
