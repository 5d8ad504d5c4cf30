//! Starts the Lambda `taint-node`. The library has its logic.

use eks_auth::Access;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let access = Access::new(&lambda::configure().await, &cluster);
    lambda::serve(|request| taint_node::handle(&access, request)).await
}
