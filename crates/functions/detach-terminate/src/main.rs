//! The Lambda function `detach-terminate`; see the library.

use detach_terminate::DetachTerminate;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_step::Error> {
    let cluster = eks_auth::read_cluster_name(|name| std::env::var(name).ok())?;
    let step = DetachTerminate::new(&lambda_step::configure().await, &cluster);
    lambda_step::serve(|request| step.handle(request)).await
}
