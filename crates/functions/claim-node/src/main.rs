//! The Lambda function `claim-node`; see the library.

use claim_node::{ClaimNode, read_settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let settings = read_settings(|name| std::env::var(name).ok())?;
    let aws = lambda_step::configure().await;
    let step = ClaimNode::new(settings, &aws);
    lambda_step::serve(|request| step.handle(request)).await
}
