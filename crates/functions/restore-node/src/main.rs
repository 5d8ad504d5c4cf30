//! The Lambda function `restore-node`; see the library.

use restore_node::RestoreNode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let cluster = eks_auth::read_cluster_name(|name| std::env::var(name).ok())?;
    let step = RestoreNode::new(&lambda_step::configure().await, &cluster);
    lambda_step::serve(|request| step.answer(request)).await
}
