//! Starts the Lambda `select-nodes`. The library has its logic.

use select_nodes::{SelectNodes, read_most_at_once};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let most_at_once = read_most_at_once(|name| std::env::var(name).ok())?;
    let cluster = eks_auth::read_cluster_name(|name| std::env::var(name).ok())?;
    let step = SelectNodes::new(&lambda::configure().await, &cluster, most_at_once);
    lambda::serve(|request| step.handle(request)).await
}
