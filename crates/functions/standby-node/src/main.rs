//! Starts the Lambda `standby-node`. The library has its logic.

use standby_node::StandbyNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let step = StandbyNode::new(&lambda::configure().await, &cluster);
    lambda::serve(|request| step.handle(request)).await
}
