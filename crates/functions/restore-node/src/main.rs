//! Starts the Lambda `restore-node`. The library has its logic.

use restore_node::RestoreNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let step = RestoreNode::new(&lambda::configure().await, &cluster);
    lambda::serve(|request| step.handle_call(request)).await
}
