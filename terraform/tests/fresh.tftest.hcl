# The first plan of a configuration that also creates the cluster.

mock_provider "aws" {
  source = "./tests/mocks"
}

run "a_plan_works_before_any_resource_exists" {
  command = plan

  module {
    source = "./tests/fresh"
  }

  assert {
    condition     = length(output.role_steps) == 9
    error_message = "the set of resources does not depend on values that are known only after an apply"
  }
}
