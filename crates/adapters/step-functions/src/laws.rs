//! Property tests: an execution has ended, or succeeded, only if the answer of Step Functions contains that status.

use bad_input::{block_on, each_gap, few_cases, spoiled};
use proptest::prelude::*;
use scripted_aws::ScriptedAws;
use serde_json::{Value, json};

use super::*;

const ROTATION: &str = "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-rotate-nodes:one";

fn whole_execution() -> Value {
    json!({"executionArn": ROTATION, "stateMachineArn": "arn:m", "name": "one", "status": "RUNNING", "startDate": 2_000_000_000})
}

fn is_running(answer: &Value) -> Result<bool, Error> {
    let aws = ScriptedAws::new().on("DescribeExecution", &answer.to_string());
    let (rotation, marks) = (ROTATION.parse().unwrap(), Marks::default());
    block_on(Executions::new(&aws.config()).is_running(&rotation, &marks, Timestamp::UNIX_EPOCH))
}

/// Checks whether the failed execution of this page is counted.
fn counts_failure(page: &Value) -> Result<bool, Error> {
    let aws = ScriptedAws::new().on("ListExecutions", &page.to_string());
    let began = "2027-01-01T00:00:00Z".parse().unwrap();
    Ok(!block_on(Executions::new(&aws.config()).list_ended_badly("arn:m", began))?.is_empty())
}

#[test]
fn an_incomplete_answer_ends_no_execution_and_hides_no_failure() {
    assert!(is_running(&whole_execution()).unwrap());
    for (_, answer) in each_gap(&whole_execution()) {
        assert!(is_running(&answer).unwrap_or(true), "{answer}");
    }
    let mut failed = whole_execution();
    failed["status"] = json!("FAILED");
    assert!(counts_failure(&json!({"executions": [failed]})).unwrap());
    for (_, failed) in each_gap(&failed) {
        let page = json!({"executions": [failed]});
        assert!(counts_failure(&page).unwrap_or(true), "{page}");
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn an_execution_has_ended_only_with_such_a_status(answer in spoiled(vec![whole_execution()])) {
        prop_assert!(is_running(&answer).unwrap_or(true), "{}", answer);
    }
}
