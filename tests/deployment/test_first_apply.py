"""The real module, applied by real Terraform to an empty account of the world."""

from terraform_rights import unlisted
from world.deployment import variables

#: The world makes the groups that get a hook.
OF_THE_WORLD = {"autoscaling:CreateAutoScalingGroup", "ec2:CreateLaunchTemplate"}


def test_a_first_apply_makes_the_calls_that_the_page_lists_starts_nothing_and_leaves_nothing_to_plan(empty_world):
    applied = empty_world.deployment.apply()

    assert unlisted(call.action for call in empty_world.aws.calls) == OF_THE_WORLD
    assert not empty_world.executions("rotate-nodes")
    assert applied.plan_is_empty(**variables())
