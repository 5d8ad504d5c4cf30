# The first plan of a configuration that creates the cluster, too.

mock_provider "aws" {
  source = "./tests/mocks"
}

run "can_be_planned_before_anything_is_there" {
  command = plan

  module {
    source = "./tests/fresh"
  }

  assert {
    condition     = length(output.role_steps) == 8
    error_message = "what is created does not hang on values that only an apply can tell"
  }
}
