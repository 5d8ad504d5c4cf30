//! Starts the Lambda `detach-terminate`. The library has its logic.

use detach_terminate::DetachTerminate;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda::Error> {
    let cluster = lambda::read_cluster_name(lambda::variable)?;
    let step = DetachTerminate::new(&lambda::configure().await, &cluster);
    lambda::serve(|request| step.handle(request)).await
}
