//! Starts the Lambda `detach-terminate`. The library has its logic.

use detach_terminate::DetachTerminate;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = eks_auth::read_cluster_name(|name| std::env::var(name).ok())?;
    let step = DetachTerminate::new(&lambda::configure().await, &cluster);
    lambda::serve(|request| step.handle(request)).await
}
