//! Starts the Lambda `standby-node`. The library has its logic.

use standby_node::StandbyNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = eks_auth::read_cluster_name(|name| std::env::var(name).ok())?;
    let step = StandbyNode::new(&lambda::configure().await, &cluster);
    lambda::serve(|request| step.handle(request)).await
}
