//! The Lambda function `standby-node`; see the library.

use standby_node::StandbyNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let step = StandbyNode::new(&lambda_step::configure().await);
    lambda_step::serve(|request| step.handle(request)).await
}
