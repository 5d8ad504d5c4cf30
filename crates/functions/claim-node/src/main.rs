//! Starts the Lambda `claim-node`. The library has its logic.

use claim_node::{ClaimNode, read_settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let settings = read_settings(lambda::variable)?;
    let aws = lambda::configure().await;
    let step = ClaimNode::new(settings, &aws);
    lambda::serve(|request| step.handle(request)).await
}
