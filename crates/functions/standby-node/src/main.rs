//! The Lambda function `standby-node`; see the library.

use standby_node::StandbyNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let cluster = eks_auth::read_cluster_name(|name| std::env::var(name).ok())?;
    let step = StandbyNode::new(&lambda_step::configure().await, &cluster);
    lambda_step::serve(|request| step.handle(request)).await
}
